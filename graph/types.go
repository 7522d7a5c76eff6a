package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

func (a api) user() fields {
	return fields{
		"id":                exec.Value(userID),
		"handle":            exec.Value(func(u *ent.User) string { return u.Handle }),
		"name":              exec.Value(func(u *ent.User) string { return u.Name }),
		"bio":               exec.Value(func(u *ent.User) string { return u.Bio }),
		"createdAt":         exec.Value(func(u *ent.User) time.Time { return u.CreatedAt }),
		"approvesFollowers": exec.Value(func(u *ent.User) bool { return u.ApprovesFollowers }),
		"followerCount":     exec.Value(func(u *ent.User) int { return u.FollowerCount }),
		"followingCount":    exec.Value(func(u *ent.User) int { return u.FollowingCount }),
		"postCount":         exec.Value(func(u *ent.User) int { return u.PostCount }),
		"defaultVisibility": exec.One(func(ctx context.Context, u *ent.User, _ exec.Args) (*string, error) {
			if Viewer(ctx).ID != u.ID {
				return nil, nil
			}
			return (*string)(&u.DefaultVisibility), nil
		}),
		"posts": exec.One(func(ctx context.Context, u *ent.User, args exec.Args) (*feed.Connection[ent.Post], error) {
			return a.feed.UserPosts(ctx, Viewer(ctx), u.ID, page(args))
		}),
		"followers": exec.One(func(ctx context.Context, u *ent.User, args exec.Args) (*feed.Connection[ent.User], error) {
			return a.feed.Followers(ctx, u.ID, page(args))
		}),
		"following": exec.One(func(ctx context.Context, u *ent.User, args exec.Args) (*feed.Connection[ent.User], error) {
			return a.feed.Following(ctx, u.ID, page(args))
		}),
		"followRequests": exec.One(func(ctx context.Context, u *ent.User, args exec.Args) (*feed.Connection[ent.User], error) {
			return a.feed.FollowRequests(ctx, Viewer(ctx), u.ID, page(args))
		}),
		"relationship": exec.Many(a.relationships),
	}
}

func (a api) relationships(ctx context.Context, users []*ent.User, _ exec.Args) ([]*feed.Relation, error) {
	ids := make([]int64, len(users))
	for i, u := range users {
		ids[i] = u.ID
	}
	return a.feed.Relations(ctx, Viewer(ctx), ids)
}

func relationship() fields {
	return fields{
		"following":  exec.Value(func(r *feed.Relation) bool { return r.Following }),
		"followedBy": exec.Value(func(r *feed.Relation) bool { return r.FollowedBy }),
		"mutual":     exec.Value((*feed.Relation).Mutual),
		"blocking":   exec.Value(func(r *feed.Relation) bool { return r.Blocking }),
		"muting":     exec.Value(func(r *feed.Relation) bool { return r.Muting }),
		"requested":  exec.Value(func(r *feed.Relation) bool { return r.Requested }),
	}
}

func (a api) post() fields {
	return fields{
		"id":         exec.Value(postID),
		"text":       exec.Value(func(p *ent.Post) string { return p.Text }),
		"visibility": exec.Value(func(p *ent.Post) string { return string(p.Visibility) }),
		"createdAt":  exec.Value(func(p *ent.Post) time.Time { return feed.TimeOf(p.ID) }),
		"likeCount":  exec.Value(func(p *ent.Post) int { return p.LikeCount }),
		"author": exec.Many(func(ctx context.Context, posts []*ent.Post, _ exec.Args) ([]*ent.User, error) {
			if len(posts) == 1 && posts[0].Edges.Author != nil { // of an event: read for all who get it
				return []*ent.User{posts[0].Edges.Author}, nil
			}
			ids := make([]int64, len(posts))
			for i, p := range posts {
				ids[i] = p.AuthorID
			}
			return a.feed.Users(ctx, ids)
		}),
		"delivery": exec.Many(func(ctx context.Context, posts []*ent.Post, _ exec.Args) ([]*ent.Delivery, error) {
			return a.feed.Deliveries(ctx, Viewer(ctx), posts)
		}),
		"viewerHasLiked": exec.Many(func(ctx context.Context, posts []*ent.Post, _ exec.Args) ([]bool, error) {
			ids := make([]int64, len(posts))
			for i, p := range posts {
				ids[i] = p.ID
			}
			return a.feed.Liked(ctx, Viewer(ctx), ids)
		}),
	}
}

func postDelivery() fields {
	return fields{
		"pushed":      exec.Value(func(d *ent.Delivery) int { return d.Pushed }),
		"pulled":      exec.Value(func(d *ent.Delivery) int { return d.Pulled }),
		"skipped":     exec.Value(func(d *ent.Delivery) int { return d.Skipped }),
		"firstLagMs":  exec.Value(func(d *ent.Delivery) int64 { return d.FirstLag }),
		"medianLagMs": exec.Value(func(d *ent.Delivery) int64 { return d.MedianLag }),
		"lastLagMs":   exec.Value(func(d *ent.Delivery) int64 { return d.LastLag }),
		"done":        exec.Value(func(d *ent.Delivery) bool { return d.Done }),
	}
}

// pages is a connection's pageInfo.
type pages struct {
	next, previous bool
	start, end     *string
}

func connection[T any]() fields {
	type conn = feed.Connection[T]
	return fields{
		"edges": exec.Value(func(c *conn) []any {
			edges := make([]any, len(c.Edges))
			for i := range c.Edges {
				edges[i] = &c.Edges[i]
			}
			return edges
		}),
		"nodes": exec.Value(func(c *conn) []any { return exec.List(c.Nodes()) }),
		"pageInfo": exec.Value(func(c *conn) *pages {
			p := &pages{next: c.HasNextPage, previous: c.HasPreviousPage}
			if n := len(c.Edges); n > 0 {
				p.start, p.end = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
			}
			return p
		}),
	}
}

func edge[T any]() fields {
	return fields{
		"cursor": exec.Value(func(e *feed.Edge[T]) string { return e.Cursor }),
		"node":   exec.Value(func(e *feed.Edge[T]) *T { return e.Node }),
	}
}

func pageInfo() fields {
	return fields{
		"hasNextPage":     exec.Value(func(p *pages) bool { return p.next }),
		"hasPreviousPage": exec.Value(func(p *pages) bool { return p.previous }),
		"startCursor":     exec.Value(func(p *pages) *string { return p.start }),
		"endCursor":       exec.Value(func(p *pages) *string { return p.end }),
	}
}

func (a api) timelineConnection() fields {
	f := connection[ent.Post]()
	f["unreadCount"] = unreadCount[*feed.Connection[ent.Post]](a)
	return f
}

func timelineEdge() fields {
	f := edge[ent.Post]()
	f["score"] = exec.Value(func(e *feed.Edge[ent.Post]) float64 { return e.Score })
	return f
}

// unreadCount is the viewer's, whatever it is a field of.
func unreadCount[P any](a api) exec.Field {
	return exec.One(func(ctx context.Context, _ P, _ exec.Args) (int, error) {
		return a.feed.UnreadCount(ctx, Viewer(ctx))
	})
}

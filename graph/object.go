package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/tag"
	"tideline/feed/visibility"
	"tideline/graph/exec"
	"tideline/graph/model"
)

func (user) DefaultVisibility(ctx context.Context, u *ent.User) (*schema.Visibility, error) {
	if Viewer(ctx).ID != u.ID {
		return nil, nil
	}
	return &u.DefaultVisibility, nil
}

func (r user) ExternalID(ctx context.Context, u *ent.User) (*string, error) {
	g := groupsOf(ctx)
	return field(g, g.users, u, "externalId", func(users []*ent.User) ([]*string, error) {
		return r.Login.ExternalIDs(ctx, Viewer(ctx), idsOf(users, func(u *ent.User) int64 { return u.ID }))
	})
}

func (r user) AvatarURL(_ context.Context, u *ent.User) (*string, error) { return r.Avatars.Of(u), nil }

func (r user) Data(ctx context.Context, u *ent.User) (string, error) {
	if u.Data != nil { // set by the mutation that changed it
		return *u.Data, nil
	}
	exec.Read(ctx)
	g := groupsOf(ctx)
	data, err := field(g, g.users, u, "data", func(users []*ent.User) ([]*string, error) {
		return r.Directory.Data(ctx, idsOf(users, func(u *ent.User) int64 { return u.ID }))
	})
	return orZero(data), err
}

func (r user) PostCount(ctx context.Context, u *ent.User) (int, error) {
	relation, err := r.relation(ctx, u)
	return visibility.PostCount(Viewer(ctx).ID, relation, u), err
}

func (r user) Posts(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.Post], error) {
	c, err := r.Feed.UserPosts(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r user) Followers(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	exec.Read(ctx)
	c, err := r.Feed.Followers(ctx, u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) Following(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	exec.Read(ctx)
	c, err := r.Feed.Following(ctx, u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) FollowRequests(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	c, err := r.Feed.FollowRequests(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) SentRequests(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	c, err := r.Feed.SentRequests(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) Blocked(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	c, err := r.Feed.Blocked(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) Muted(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.User], error) {
	c, err := r.Feed.Muted(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return userPage(ctx, c, err)
}

func (r user) LikedPosts(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.Post], error) {
	c, err := r.Feed.LikedPosts(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r user) MutedConversations(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[ent.Post], error) {
	c, err := r.Feed.MutedConversations(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after})
	return postPage(ctx, c, err)
}

func (r user) Sessions(ctx context.Context, u *ent.User, first *int, after *string) (*paging.Connection[session.Session], error) {
	return r.Backend.Sessions.List(ctx, Viewer(ctx), u.ID, paging.Page{First: first, After: after}, r.Home.MaxPage())
}

func (r user) MutedWords(ctx context.Context, u *ent.User) ([]string, error) {
	return r.Feed.MutedWords(ctx, Viewer(ctx), u.ID)
}

func (r user) UnreadCount(ctx context.Context, u *ent.User) (*int, error) {
	v := Viewer(ctx)
	if v.ID != u.ID {
		return nil, nil
	}
	n, err := unreadOnce(ctx, func() (int, error) { return r.Home.Unread.Count(ctx, v) })
	return &n, err
}

func (r user) Relationship(ctx context.Context, u *ent.User) (*model.Relationship, error) {
	return r.relationship(ctx, u)
}

// relationship returns the viewer's relation to a user as a node, or nil for an anonymous viewer.
func (a api) relationship(ctx context.Context, u *ent.User) (*model.Relationship, error) {
	relation, err := a.relation(ctx, u)
	if relation == nil || err != nil {
		return nil, err
	}
	return &model.Relationship{Relation: *relation, Viewer: Viewer(ctx).ID, User: u.ID}, nil
}

// relation returns the viewer's relation to a user.
func (a api) relation(ctx context.Context, u *ent.User) (*visibility.Relation, error) {
	g := groupsOf(ctx)
	return field(g, g.users, u, "relationship", func(users []*ent.User) ([]*visibility.Relation, error) {
		return a.Feed.Relations(ctx, Viewer(ctx), idsOf(users, func(u *ent.User) int64 { return u.ID }))
	})
}

func (r post) Author(ctx context.Context, p *ent.Post) (*ent.User, error) {
	if p.Edges.Author != nil { // read with the post
		return p.Edges.Author, nil
	}
	exec.Read(ctx)
	g := groupsOf(ctx)
	return field(g, g.posts, p, "author", func(posts []*ent.Post) ([]*ent.User, error) {
		users, err := r.Directory.Users(ctx, idsOf(posts, func(p *ent.Post) int64 { return p.AuthorID }))
		usersTogether(ctx, users)
		return users, err
	})
}

func (post) CreatedAt(_ context.Context, p *ent.Post) (*time.Time, error) {
	at := ids.TimeOf(p.ID)
	return &at, nil
}

func (post) Tags(_ context.Context, p *ent.Post) ([]string, error) { return tag.In(p.Text), nil }

func (r post) Data(ctx context.Context, p *ent.Post) (string, error) {
	if p.Data != nil { // set by the mutation that changed it, or read with the post of an event
		return *p.Data, nil
	}
	g := groupsOf(ctx)
	data, err := field(g, g.posts, p, "data", func(posts []*ent.Post) ([]*string, error) {
		return r.Feed.Data(ctx, Viewer(ctx), posts)
	})
	return orZero(data), err
}

func (r post) ViewerHasLiked(ctx context.Context, p *ent.Post) (bool, error) {
	if liked, known := visibility.Liked(p); known { // already read with the post
		return liked, nil
	}
	liked, ok := exec.Flag(ctx, func(ctx context.Context, event any) (bool, error) {
		return r.Streams.Liked(ctx, Viewer(ctx), event)
	})
	if ok { // a shared event has one post
		return liked, nil
	}
	g := groupsOf(ctx)
	return field(g, g.posts, p, "viewerHasLiked", func(posts []*ent.Post) ([]bool, error) {
		return r.Feed.Liked(ctx, Viewer(ctx), posts)
	})
}

func (r post) Versions(ctx context.Context, p *ent.Post, first *int, after *string) (*paging.Connection[ent.PostVersion], error) {
	return r.Moderation.Versions(ctx, Viewer(ctx), p, paging.Page{First: first, After: after})
}

func (r post) Delivery(ctx context.Context, p *ent.Post) (*ent.Delivery, error) {
	g := groupsOf(ctx)
	return field(g, g.posts, p, "delivery", func(posts []*ent.Post) ([]*ent.Delivery, error) {
		return r.Feed.Deliveries(ctx, Viewer(ctx), posts)
	})
}

func (r timelineConnection) UnreadCount(ctx context.Context, _ *paging.Connection[ent.Post]) (int, error) {
	v := Viewer(ctx)
	return unreadOnce(ctx, func() (int, error) { return r.Home.Unread.Count(ctx, v) })
}

func idsOf[T any](objects []*T, id func(*T) int64) []int64 {
	ids := make([]int64, len(objects))
	for i, o := range objects {
		ids[i] = id(o)
	}
	return ids
}

package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/graph/exec"
)

// mutate makes a mutation whose one argument is its input object.
func mutate[T any](resolve func(ctx context.Context, v feed.Viewer, in exec.Args) (T, error)) exec.Field {
	return root(func(ctx context.Context, v feed.Viewer, args exec.Args) (T, error) {
		return resolve(ctx, v, args.Input("input"))
	})
}

// relate makes a mutation of the viewer's relation to a user.
func relate(change func(ctx context.Context, v feed.Viewer, other int64) (*ent.User, error)) exec.Field {
	return mutate(func(ctx context.Context, v feed.Viewer, in exec.Args) (*ent.User, error) {
		id, err := idArg(in, "userId", "User")
		if err != nil {
			return nil, err
		}
		return change(ctx, v, id)
	})
}

// onPost makes a mutation of one post.
func onPost[T any](change func(ctx context.Context, v feed.Viewer, id int64, in exec.Args) (T, error)) exec.Field {
	return mutate(func(ctx context.Context, v feed.Viewer, in exec.Args) (T, error) {
		id, err := idArg(in, "postId", "Post")
		if err != nil {
			var none T
			return none, err
		}
		return change(ctx, v, id, in)
	})
}

func (a api) mutation() fields {
	return fields{
		"signUp": mutate(func(ctx context.Context, _ feed.Viewer, in exec.Args) (*feed.Auth, error) {
			return a.feed.SignUp(ctx, *in.String("handle"), *in.String("password"), orEmpty(in.String("name")))
		}),
		"logIn": mutate(func(ctx context.Context, _ feed.Viewer, in exec.Args) (*feed.Auth, error) {
			return a.feed.LogIn(ctx, *in.String("handle"), *in.String("password"))
		}),
		"logOut": root(func(ctx context.Context, v feed.Viewer, _ exec.Args) (bool, error) {
			return true, a.feed.LogOut(ctx, v)
		}),
		"updateProfile": mutate(func(ctx context.Context, v feed.Viewer, in exec.Args) (*ent.User, error) {
			return a.feed.UpdateProfile(ctx, v, feed.Profile{
				Name: in.String("name"), Bio: in.String("bio"),
				DefaultVisibility: visibility(in, "defaultVisibility"), ApprovesFollowers: in.Bool("approvesFollowers"),
			})
		}),
		"createPost": mutate(func(ctx context.Context, v feed.Viewer, in exec.Args) (*ent.Post, error) {
			return a.feed.CreatePost(ctx, v, feed.Draft{
				Text: *in.String("text"), Visibility: visibility(in, "visibility"), IdempotencyKey: orEmpty(in.String("idempotencyKey")),
			})
		}),
		"setPostVisibility": onPost(func(ctx context.Context, v feed.Viewer, id int64, in exec.Args) (*ent.Post, error) {
			return a.feed.SetVisibility(ctx, v, id, *visibility(in, "visibility"))
		}),
		"deletePost": onPost(func(ctx context.Context, v feed.Viewer, id int64, _ exec.Args) (deleted, error) {
			return deleted(id), a.feed.DeletePost(ctx, v, id)
		}),
		"likePost": onPost(func(ctx context.Context, v feed.Viewer, id int64, _ exec.Args) (*ent.Post, error) {
			return a.feed.LikePost(ctx, v, id)
		}),
		"unlikePost": onPost(func(ctx context.Context, v feed.Viewer, id int64, _ exec.Args) (*ent.Post, error) {
			return a.feed.UnlikePost(ctx, v, id)
		}),
		"follow": relate(a.feed.Follow), "unfollow": relate(a.feed.Unfollow),
		"acceptFollower": relate(a.feed.AcceptFollower), "rejectFollower": relate(a.feed.RejectFollower),
		"block": relate(a.feed.Block), "unblock": relate(a.feed.Unblock),
		"mute": relate(a.feed.Mute), "unmute": relate(a.feed.Unmute),
		"markTimelineRead": mutate(func(ctx context.Context, v feed.Viewer, in exec.Args) (unread, error) {
			n, err := a.feed.MarkRead(ctx, v, *in.String("upTo"))
			return unread(n), err
		}),
	}
}

func visibility(in exec.Args, name string) *schema.Visibility {
	return (*schema.Visibility)(in.String(name))
}

// Payloads are what the mutation returned: their fields take it apart.

type (
	deleted int64 // the id of a post that was deleted
	unread  int   // a number of entries
)

func itself[T any](v T) T { return v }

func authPayload() fields {
	return fields{
		"token":     exec.Value(func(s *feed.Auth) string { return s.Token }),
		"expiresAt": exec.Value(func(s *feed.Auth) time.Time { return s.ExpiresAt }),
		"user":      exec.Value(func(s *feed.Auth) *ent.User { return s.User }),
	}
}

func userPayload() fields { return fields{"user": exec.Value(itself[*ent.User])} }
func postPayload() fields { return fields{"post": exec.Value(itself[*ent.Post])} }

func (a api) createPostPayload() fields {
	return fields{
		"post": exec.Value(itself[*ent.Post]),
		"edge": exec.One(func(ctx context.Context, p *ent.Post, _ exec.Args) (*feed.Edge[ent.Post], error) {
			e, err := a.feed.Entry(ctx, Viewer(ctx), p)
			return &e, err
		}),
	}
}

func deletePostPayload() fields {
	return fields{"deletedPostId": exec.Value(func(id deleted) string { return globalID("Post", int64(id)) })}
}

func (a api) relationshipPayload() fields {
	return fields{
		"user":         exec.Value(itself[*ent.User]),
		"relationship": exec.Many(a.relationships),
	}
}

func markPayload() fields {
	return fields{"unreadCount": exec.Value(func(n unread) int { return int(n) })}
}

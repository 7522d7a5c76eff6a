package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed/stream"
	"tideline/graph/exec"
	"tideline/graph/model"
)

// The compiler checks this, because Open only asks whether a source is a Sharer.
var _ exec.Sharer[stream.Event] = (*stream.Stream)(nil)

func (r subscription) TimelineEvents(ctx context.Context, after *string, heartbeat *int, updates *bool) (<-chan stream.Event, error) {
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[stream.Event], error) {
		return r.Streams.Listen(ctx, Viewer(ctx), stream.Options{
			After: after, Heartbeat: time.Duration(orZero(heartbeat)) * time.Second, Updates: orZero(updates),
		}, wake)
	})
}

func (r subscription) PostCounts(ctx context.Context, ids []string) (<-chan []*ent.Post, error) {
	if err := r.fewEnough(ids); err != nil {
		return nil, err
	}
	if posts, ok := exec.Executed[[]*ent.Post](ctx); ok {
		postsTogether(ctx, posts)
	}
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[[]*ent.Post], error) {
		return r.Counts.Watch(ctx, Viewer(ctx), existing("Post", ids), wake)
	})
}

func (r subscription) UserStates(ctx context.Context, ids []string) (<-chan []*ent.User, error) {
	if err := r.fewEnough(ids); err != nil {
		return nil, err
	}
	if users, ok := exec.Executed[[]*ent.User](ctx); ok {
		usersTogether(ctx, users)
	}
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[[]*ent.User], error) {
		return r.Users.Watch(ctx, Viewer(ctx), existing("User", ids), wake)
	})
}

func (r subscription) ConversationEvents(ctx context.Context, postID string, after *string) (<-chan stream.ConversationEvent, error) {
	id, err := idOf("postId", postID, "Post")
	if err != nil {
		return nil, err
	}
	if event, ok := exec.Executed[stream.ConversationEvent](ctx); ok {
		switch event := event.(type) {
		case *stream.ConversationPostAdded:
			postsTogether(ctx, []*ent.Post{event.Post})
		case *stream.ConversationPostUpdated:
			postsTogether(ctx, []*ent.Post{event.Post})
		}
	}
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[stream.ConversationEvent], error) {
		return r.Streams.ListenConversation(ctx, Viewer(ctx), id, after, wake)
	})
}

func (replyRemoved) PostID(_ context.Context, e *stream.ConversationPostRemoved) (string, error) {
	return ent.NodeID("Post", e.PostID), nil
}

func (r postAdded) UnreadCount(ctx context.Context, e *stream.PostAdded) (int, error) {
	return exec.Int(ctx, e, func(ctx context.Context, event any) (int, error) {
		v := Viewer(ctx)
		return unreadOnce(ctx, func() (int, error) { return r.Streams.UnreadCount(ctx, v, event.(*stream.PostAdded)) })
	})
}

func (r postAdded) Viewer(ctx context.Context, _ *stream.PostAdded) (*ent.User, error) {
	return r.viewer(ctx)
}

func (postRemoved) PostID(_ context.Context, e *stream.PostRemoved) (string, error) {
	return ent.NodeID("Post", e.PostID), nil
}

func (postRemoved) Reason(_ context.Context, e *stream.PostRemoved) (model.TimelineRemoval, error) {
	if e.Deleted {
		return model.TimelineRemovalDeleted, nil
	}
	return model.TimelineRemovalNotVisible, nil
}

func (r heartbeat) Viewer(ctx context.Context, _ *stream.Heartbeat) (*ent.User, error) {
	return r.viewer(ctx)
}

func (r heartbeat) UnreadCount(ctx context.Context, _ *stream.Heartbeat) (int, error) {
	v := Viewer(ctx)
	return unreadOnce(ctx, func() (int, error) { return r.Home.Unread.Count(ctx, v) })
}

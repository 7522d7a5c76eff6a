package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

func (r subscription) TimelineEvents(ctx context.Context, after *string, heartbeat *int) (<-chan feed.Event, error) {
	return exec.Open(ctx, func(ctx context.Context, wake func()) (exec.Source[feed.Event], error) {
		return r.feed.Listen(ctx, Viewer(ctx), feed.Listening{
			After: after, Heartbeat: time.Duration(orZero(heartbeat)) * time.Second,
		}, wake)
	})
}

func (r postAdded) UnreadCount(ctx context.Context, e *feed.PostAdded) (int, error) {
	return exec.Int(ctx, e, func(ctx context.Context, event any) (int, error) {
		return r.feed.UnreadWith(ctx, Viewer(ctx), event.(*feed.PostAdded))
	})
}

func (postRemoved) PostID(_ context.Context, e *feed.PostRemoved) (string, error) {
	return ent.NodeID("Post", e.PostID), nil
}

func (r heartbeat) UnreadCount(ctx context.Context, _ *feed.Heartbeat) (int, error) {
	return r.feed.UnreadCount(ctx, Viewer(ctx))
}

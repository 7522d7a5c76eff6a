package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

func (r subscription) TimelineEvents(ctx context.Context, after *string, heartbeat *int) (<-chan feed.Event, error) {
	return r.feed.TimelineEvents(ctx, Viewer(ctx), feed.Listening{
		After:       after,
		Heartbeat:   time.Duration(orZero(heartbeat)) * time.Second,
		Interrupted: func(error) { exec.Interrupt(ctx) },
	})
}

func (r postAdded) UnreadCount(ctx context.Context, _ *feed.PostAdded) (int, error) {
	return r.feed.UnreadCount(ctx, Viewer(ctx))
}

func (postRemoved) PostID(_ context.Context, e *feed.PostRemoved) (string, error) {
	return ent.NodeID("Post", e.PostID), nil
}

func (r heartbeat) UnreadCount(ctx context.Context, _ *feed.Heartbeat) (int, error) {
	return r.feed.UnreadCount(ctx, Viewer(ctx))
}

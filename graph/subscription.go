package graph

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph/exec"
)

func (a api) subscription() fields {
	return fields{
		"timelineEvents": exec.Stream(func(ctx context.Context, args exec.Args) (<-chan any, error) {
			l := feed.Listening{After: args.String("after")}
			if seconds := args.Int("heartbeat"); seconds != nil {
				l.Heartbeat = time.Duration(*seconds) * time.Second
			}
			return a.feed.TimelineEvents(ctx, Viewer(ctx), l)
		}),
	}
}

func (a api) postAdded() fields {
	return fields{
		"edge":        exec.Value(func(e *feed.PostAdded) *feed.Edge[ent.Post] { return &e.Edge }),
		"unreadCount": unreadCount[*feed.PostAdded](a),
		"position":    exec.Value(func(e *feed.PostAdded) string { return e.Edge.Cursor }),
	}
}

func postRemoved() fields {
	return fields{
		"postId":   exec.Value(func(e *feed.PostRemoved) string { return globalID("Post", e.PostID) }),
		"position": exec.Value(func(e *feed.PostRemoved) string { return e.Position }),
	}
}

func invalidated() fields {
	return fields{
		"reason":   exec.Value(func(e *feed.Invalidated) string { return e.Reason }),
		"position": exec.Value(func(e *feed.Invalidated) string { return e.Position }),
	}
}

func (a api) heartbeat() fields {
	return fields{
		"position":    exec.Value(func(e *feed.Heartbeat) string { return e.Position }),
		"unreadCount": unreadCount[*feed.Heartbeat](a),
	}
}

package stream

import (
	"context"
	"slices"
	"sync"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/visibility"
)

// Event is one event of a stream: *PostAdded, *PostRemoved, *Invalidated or
// *Heartbeat.
type Event interface{ event() }

func (*PostAdded) event()   {}
func (*PostRemoved) event() {}
func (*Invalidated) event() {}
func (*Heartbeat) event()   {}

// PostAdded says that a post entered the timeline. A client that resumes after
// the edge's cursor misses nothing and gets nothing twice.
type PostAdded struct {
	Edge paging.Edge[ent.Post]
	*sharedEvent
}

// Position is the cursor to resume after.
func (e *PostAdded) Position() string { return e.Edge.Cursor }

// PostRemoved says that a post left the timeline.
type PostRemoved struct {
	PostID   int64
	Position string // the cursor to resume after
	*sharedEvent
}

// Invalidated says that more changed than is sent one by one: read the timeline
// again.
type Invalidated struct {
	Reason   string
	Position string
}

// Heartbeat says that nothing was missed up to here.
type Heartbeat struct{ Position string }

// sharedEvent is an event that many streams of this process bring at the same time.
// It has the verdict on the post, and the facts that are read for all viewers at once. It
// is nil for an event that only one stream brings.
type sharedEvent struct {
	verdict visibility.Verdict
	users   []int64 // ascending

	mu    sync.Mutex
	found map[any]func() any
}

// shared returns the event, nil when only one stream brings it.
func (e *sharedEvent) shared() *sharedEvent {
	if len(e.users) == 1 {
		return nil
	}
	return e
}

// Once returns the result of made for the key. It calls made once for all viewers
// who get the event. It returns nil when only one viewer gets it.
func (e *sharedEvent) Once(key any, made func() any) any {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	once := e.found[key]
	if once == nil {
		if e.found == nil {
			e.found = map[any]func() any{}
		}
		once = sync.OnceValue(made)
		e.found[key] = once
	}
	e.mu.Unlock()
	return once()
}

// Neutral returns the event with the placeholder in place of the viewer's own
// cursor.
func (e *PostAdded) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// Own returns the string that the placeholder stands for.
func (e *PostAdded) Own() string { return e.Edge.Cursor }

// Neutral returns the event with the placeholder in place of the viewer's own
// cursor.
func (e *PostRemoved) Neutral(placeholder string) any {
	return &PostRemoved{PostID: e.PostID, Position: placeholder}
}

// Own returns the string that the placeholder stands for.
func (e *PostRemoved) Own() string { return e.Position }

// Liked reports whether the viewer likes an event's post.
//
// Cost: one query for all viewers who get the event at the same time.
func (s *Streams) Liked(ctx context.Context, v account.Viewer, e *PostAdded) (bool, error) {
	type key struct{}
	type answer struct {
		users []int
		err   error
	}
	post := e.Edge.Node.ID
	found, _ := e.Once(key{}, func() any {
		users, err := s.cfg.DB.Like.Query().Where(like.PostID(post), rows.Among(like.FieldUserID, e.users)).
			Select(like.FieldUserID).Ints(context.WithoutCancel(ctx))
		return answer{users, err}
	}).(answer)
	if e.sharedEvent == nil || found.err != nil {
		liked, err := s.cfg.DB.Like.Query().Where(like.PostID(post), like.UserID(v.ID)).Exist(ctx)
		return liked, rows.Wrap("read likes", err)
	}
	return slices.Contains(found.users, int(v.ID)), nil
}

// UnreadCount is the viewer's count of unread posts when the event is sent.
//
// Cost: a constant number of queries and round trips for all viewers who get the
// event at the same time, where Redis has their timelines.
func (s *Streams) UnreadCount(ctx context.Context, v account.Viewer, e *PostAdded) (int, error) {
	type key struct{}
	found, _ := e.Once(key{}, func() any {
		counts, err := s.home.UnreadCounts(context.WithoutCancel(ctx), e.users)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "unread posts not counted for many", "error", err)
		}
		return counts
	}).(map[int64]int)
	if count, ok := found[v.ID]; ok {
		return count, nil
	}
	return s.home.UnreadCount(ctx, v)
}

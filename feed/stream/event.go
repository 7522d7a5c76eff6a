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

// Event is what a stream brings: *PostAdded, *PostRemoved, *Invalidated or
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

// PostRemoved says that a post left it.
type PostRemoved struct {
	PostID   int64
	Position string // the cursor to resume after
	*sharedEvent
}

// Invalidated says that more happened than is told one by one: read the
// timeline again.
type Invalidated struct {
	Reason   string
	Position string
}

// Heartbeat says that nothing was missed up to here.
type Heartbeat struct{ Position string }

// sharedEvent is an event that many streams of this process bring at the same time:
// the verdict on its post, and what else is found out about all of their viewers at
// once. A nil one is of an event that one stream alone brings.
type sharedEvent struct {
	verdict visibility.Verdict
	users   []int64 // ascending

	mu    sync.Mutex
	found map[any]func() any
}

// shared is the event, nil when it is one stream's alone.
func (e *sharedEvent) shared() *sharedEvent {
	if len(e.users) == 1 {
		return nil
	}
	return e
}

// Once is what made returned for the key, called once for all who are given the
// event; nil when that is one alone.
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

// Neutral is the event with the placeholder where it is a viewer's own.
func (e *PostAdded) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// Own is what belongs where the placeholder is.
func (e *PostAdded) Own() string { return e.Edge.Cursor }

// Neutral is the event with the placeholder where it is a viewer's own.
func (e *PostRemoved) Neutral(placeholder string) any {
	return &PostRemoved{PostID: e.PostID, Position: placeholder}
}

// Own is what belongs where the placeholder is.
func (e *PostRemoved) Own() string { return e.Position }

// Liked reports whether the viewer likes an event's post.
//
// Cost: one query for all to whom the event is told at the same time.
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

// UnreadCount is the viewer's count of unread posts when the event is told.
//
// Cost: a constant number of queries and round trips for all to whom the event is
// told at the same time, where Redis has their timelines.
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

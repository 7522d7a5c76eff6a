package stream

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/visibility"
)

// Event is one event of a stream: *PostAdded, *PostUpdated, *PostRemoved, *Invalidated or
// *Heartbeat.
type Event interface{ event() }

func (*PostAdded) event()   {}
func (*PostUpdated) event() {}
func (*PostRemoved) event() {}
func (*Invalidated) event() {}
func (*Heartbeat) event()   {}

// PostAdded says that a post entered the timeline. A client that resumes after
// the edge's cursor misses nothing and gets nothing twice.
type PostAdded struct {
	Edge paging.Edge[ent.Post]
	*sharedEvent
	before int64 // the stream's newest post before it
	alone  bool  // something was read for this viewer alone, after the verdict
}

// Position is the cursor to resume after.
func (e *PostAdded) Position() string { return e.Edge.Cursor }

// PostUpdated says that a post of the timeline says something else than before. Who does not
// show it shows it where it belongs, if it lies within what they show.
type PostUpdated struct {
	Edge paging.Edge[ent.Post]
	*sharedEvent
	alone bool // as in PostAdded
}

// ofUpdate is a key of what is found out for those whom a shared event brings a PostUpdated:
// the same event may bring others, who do not have the post, a PostAdded.
type ofUpdate struct{ key any }

// Once is that of the shared event.
func (e *PostUpdated) Once(key any, made func() any) any {
	return e.sharedEvent.Once(ofUpdate{key}, made)
}

// Made is that of the shared event.
func (e *PostUpdated) Made(key any) (result any, ok bool) { return e.sharedEvent.Made(ofUpdate{key}) }

// Soon is that of the shared event.
func (e *PostUpdated) Soon(key any, made func() any) (result any, wait <-chan struct{}) {
	return e.sharedEvent.Soon(ofUpdate{key}, made)
}

// Position is the cursor to resume after.
func (e *PostUpdated) Position() string { return e.Edge.Cursor }

// PostRemoved says that a post left the timeline.
type PostRemoved struct {
	PostID   int64
	Position string // the cursor to resume after
	// Deleted says that the viewer, its author, deleted it. Nobody else is told a deleted
	// post from one that is hidden.
	Deleted bool
	*sharedEvent
}

// Invalidated says that more changed than is sent one by one: read the timeline
// again.
type Invalidated struct {
	Reason   string
	Position string
}

// Heartbeat has the cursor to resume after. While the process is cut off, or cannot
// tell, that vouches for no more than it did before.
type Heartbeat struct {
	Position string
	// CompleteUpTo is how far the cursor vouches: the client has every post of the timeline that
	// was made until then, unless the post is late and still on its way.
	CompleteUpTo time.Time
	// LateBy is the age in seconds of the oldest post that is on its way to timelines; 0 while
	// all arrive at once.
	LateBy int
}

// Neutral returns the event with the placeholder in place of the viewer's own
// cursor.
func (e *PostAdded) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// AppendOwn appends the string that the placeholder stands for.
func (e *PostAdded) AppendOwn(b []byte) []byte { return append(b, e.Edge.Cursor...) }

// Neutral returns the event with the placeholder in place of the viewer's own
// cursor.
func (e *PostRemoved) Neutral(placeholder string) any {
	return &PostRemoved{PostID: e.PostID, Position: placeholder, Deleted: e.Deleted}
}

// AppendOwn appends the string that the placeholder stands for.
func (e *PostRemoved) AppendOwn(b []byte) []byte { return append(b, e.Position...) }

// Neutral returns the event with the placeholder in place of the viewer's own
// cursor.
func (e *PostUpdated) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// AppendOwn appends the string that the placeholder stands for.
func (e *PostUpdated) AppendOwn(b []byte) []byte { return append(b, e.Edge.Cursor...) }

// Liked reports whether the viewer likes an event's post.
//
// Cost: one query for all viewers who get the event at the same time.
func (s *Streams) Liked(ctx context.Context, v account.Viewer, event any) (bool, error) {
	if e, ok := event.(*PostUpdated); ok {
		return s.liked(ctx, v, e.Edge.Node.ID, e.sharedEvent, &e.alone)
	}
	e := event.(*PostAdded)
	return s.liked(ctx, v, e.Edge.Node.ID, e.sharedEvent, &e.alone)
}

func (s *Streams) liked(ctx context.Context, v account.Viewer, post int64, e *sharedEvent, alone *bool) (bool, error) {
	type key struct{}
	type answer struct {
		users []int
		err   error
	}
	found, _ := e.Once(key{}, func() any {
		defer e.facts.Add(1)
		users, err := s.cfg.DB.Like.Query().Where(like.PostID(post), rows.Among(like.FieldUserID, e.users)).
			Select(like.FieldUserID).Ints(context.WithoutCancel(ctx))
		return answer{users, err}
	}).(answer)
	if e == nil || found.err != nil {
		*alone = true
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
		defer e.facts.Add(1)
		counts, err := s.home.UnreadCounts(context.WithoutCancel(ctx), e.users)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "unread posts not counted for many", "error", err)
		}
		return counts
	}).(map[int64]int)
	if count, ok := found[v.ID]; ok {
		return count, nil
	}
	e.alone = true
	return s.home.UnreadCount(ctx, v)
}

// Confirm reports whether the viewer may still be shown the post of an event for
// which more was read since Next returned it: the verdict is as new as the newest of
// that. Otherwise the client has not got the post. Alone says that something was read for
// this viewer alone. Other events are always confirmed.
//
// Cost: none when nothing was read; else a verdict, for all viewers who get the
// event at the same time; alone, one query by primary key.
func (s *Stream) Confirm(ctx context.Context, ev Event, alone bool) bool {
	var id int64
	var shared *sharedEvent
	e, added := ev.(*PostAdded)
	switch ev := ev.(type) {
	case *PostAdded:
		id, shared, alone = ev.Edge.Node.ID, ev.sharedEvent, alone || ev.alone
	case *PostUpdated:
		id, shared, alone = ev.Edge.Node.ID, ev.sharedEvent, alone || ev.alone
	default:
		return true
	}
	var sees, known bool
	if !alone {
		sees, known = s.streams.confirm(ctx, s.viewer, id, shared)
	}
	if !known {
		posts, err := s.visible(ctx, []int64{id})
		if err != nil {
			s.interrupt(ctx, err)
		}
		sees = err == nil && posts[0] != nil
	}
	if !sees && added { // of one that was there, what hid it tells that it left
		s.client.Drop(id)
		s.newest = e.before
	}
	return sees
}

// confirm gives the verdict on a shared event again, once for all facts that have
// been read for it. If known is false, it could not be read.
func (s *Streams) confirm(ctx context.Context, v account.Viewer, post int64, e *sharedEvent) (sees, known bool) {
	if e == nil {
		return true, true
	}
	type key struct{ facts, version int64 }
	k := key{e.facts.Load(), s.posts.Version()}
	if k.facts == 0 {
		return true, true
	}
	verdict, _ := e.Once(k, func() any {
		verdict, err := s.posts.Judge(context.WithoutCancel(ctx), post, e.users)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "event not confirmed for many", "post", post, "error", err)
			return nil
		}
		return &verdict
	}).(*visibility.Verdict)
	if verdict == nil {
		return false, false
	}
	return verdict.Sees(v.ID), true
}

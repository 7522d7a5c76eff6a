package stream

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/batch"
	"tideline/internal/errs"
)

// Event is one event of a stream: *PostAdded, *PostUpdated, *PostRemoved, *Invalidated or
// *Heartbeat.
type Event interface{ event() }

func (*PostAdded) event()   {}
func (*PostUpdated) event() {}
func (*PostRemoved) event() {}
func (*Invalidated) event() {}
func (*Heartbeat) event()   {}

// PostEvent is the part that PostAdded and PostUpdated have in common: an entry of the timeline.
type PostEvent struct {
	Edge           paging.Edge[ent.Post]
	*batch.Results              // for all viewers who receive the event; nil for an event that one user receives
	shared         *sharedEvent // nil for an event that one user receives
	alone          bool         // something was read for this viewer only, after the verdict
}

// Position returns the cursor to resume after.
func (e *PostEvent) Position() string { return e.Edge.Cursor }

// AppendOwn appends the viewer's cursor, which replaces the placeholder.
func (e *PostEvent) AppendOwn(b []byte) []byte { return append(b, e.Edge.Cursor...) }

func (e *PostEvent) common() *PostEvent { return e }

// PostAdded says that a post entered the timeline.
type PostAdded struct {
	PostEvent
	before int64 // the stream's newest post before this one
}

// PostUpdated is about a post that the client may have: its text was edited, or it or its root or
// original changed or is shown again. A client that does not show the post inserts it at its
// score, if that score is within the range the client displays.
type PostUpdated struct{ PostEvent }

// PostRemoved says that a post left the timeline.
type PostRemoved struct {
	PostID   int64
	Position string // the cursor to resume after
	// Deleted says that the viewer, who is the author, deleted the post. For other viewers a
	// deleted post looks like a hidden one.
	Deleted        bool
	*batch.Results // as in PostAdded
}

// Invalidated says that the client must read its timeline again: the stream cannot send every
// change one by one.
type Invalidated struct {
	Reason   string
	Position string
}

// Heartbeat carries the cursor to resume after. While the process may be missing events, the cursor
// does not advance.
type Heartbeat struct {
	Position string
	// CompleteUpTo is a time: the client has every post of the timeline that was created before
	// it, except late posts that are not delivered yet.
	CompleteUpTo time.Time
	// LateBy is the age in seconds of the oldest fan-out that is not finished, 0 if there is none.
	LateBy int
}

// Neutral returns a copy of the event with the placeholder instead of the viewer's cursor.
func (e *PostAdded) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// Neutral returns a copy of the event with the placeholder instead of the viewer's cursor.
func (e *PostRemoved) Neutral(placeholder string) any {
	return &PostRemoved{PostID: e.PostID, Position: placeholder, Deleted: e.Deleted}
}

// AppendOwn appends the viewer's cursor, which replaces the placeholder.
func (e *PostRemoved) AppendOwn(b []byte) []byte { return append(b, e.Position...) }

// Neutral returns a copy of the event with the placeholder instead of the viewer's cursor.
func (e *PostUpdated) Neutral(placeholder string) any {
	neutral := *e
	neutral.Edge.Cursor = placeholder
	return &neutral
}

// Liked reports whether the viewer likes the post of a *PostAdded or *PostUpdated.
//
// Cost: one query for all viewers who receive the event at the same time.
func (s *Streams) Liked(ctx context.Context, v session.Viewer, event any) (bool, error) {
	e := event.(interface{ common() *PostEvent }).common()
	post := e.Edge.Node.ID
	type key struct{}
	type answer struct {
		users []int
		err   error
	}
	found, _ := e.shared.forAll().Once(key{}, func() any {
		defer e.shared.facts.Add(1)
		users, err := s.cfg.DB.Like.Query().Where(like.PostID(post), rows.Among(like.FieldUserID, e.shared.users)).
			Select(like.FieldUserID).Ints(context.WithoutCancel(ctx))
		return answer{users, err}
	}).(answer)
	if e.shared == nil || found.err != nil {
		e.alone = true
		liked, err := s.cfg.DB.Like.Query().Where(like.PostID(post), like.UserID(v.ID)).Exist(ctx)
		return liked, errs.Wrap(err, "read likes")
	}
	return slices.Contains(found.users, int(v.ID)), nil
}

// UnreadCount returns the viewer's number of unread posts when the event is sent.
//
// Cost: a constant number of queries and round trips for all viewers who receive the event at the
// same time, if Redis has their timelines.
func (s *Streams) UnreadCount(ctx context.Context, v session.Viewer, e *PostAdded) (int, error) {
	type key struct{}
	found, _ := e.Once(key{}, func() any {
		defer e.shared.facts.Add(1)
		counts, err := s.home.Unread.Counts(context.WithoutCancel(ctx), e.shared.users)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "unread posts not counted for many", "error", err)
		}
		return counts
	}).(map[int64]int)
	if count, ok := found[v.ID]; ok {
		return count, nil
	}
	e.alone = true
	return s.home.Unread.Count(ctx, v)
}

// Confirm reports whether an event may be sent after its response was made. If data was read for
// the response, Confirm checks again whether the viewer may see the post, so the check is at least
// as new as the data. alone says that data was read for this viewer only. If Confirm returns false,
// the client must not receive the event, and the client state forgets an added post. Events other
// than *PostAdded and *PostUpdated are always confirmed.
//
// Cost: none if nothing was read. Otherwise one verdict for all viewers who receive the event at the
// same time, or, if alone, one query by primary key.
func (s *Stream) Confirm(ctx context.Context, ev Event, alone bool) bool {
	of, ok := ev.(interface{ common() *PostEvent })
	if !ok {
		return true
	}
	e := of.common()
	id := e.Edge.Node.ID
	var sees, known bool
	if !alone && !e.alone {
		sees, known = s.streams.confirm(ctx, s.viewer, id, e.shared)
	}
	if !known {
		posts, err := s.visible(ctx, []int64{id})
		if err != nil {
			s.interrupt(ctx, err)
		}
		sees = err == nil && posts[0] != nil
	}
	if added, ok := ev.(*PostAdded); ok && !sees { // for an updated post, the change that hid it sends a removal
		s.client.Drop(id)
		s.newest = added.before
	}
	return sees
}

// confirm reads the verdict on a shared event again, once for all viewers, and once more when more
// was read or hidden since. known is false if the verdict could not be read.
func (s *Streams) confirm(ctx context.Context, v session.Viewer, post int64, e *sharedEvent) (sees, known bool) {
	if e == nil {
		return true, true
	}
	type key struct{ facts, version int64 }
	k := key{e.facts.Load(), s.posts.Version()}
	if k.facts == 0 {
		return true, true
	}
	verdict, _ := e.forAll().Once(k, func() any {
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

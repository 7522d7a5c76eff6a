package stream

import (
	"context"
	"sync/atomic"
	"time"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/internal/batch"
	"tideline/live"
)

// sharedEvent is an event that several users of this process receive at the same time. It holds the
// verdict on the post, and what is computed once for all viewers.
type sharedEvent struct {
	verdict visibility.Verdict
	until   time.Time    // when the verdict expires
	added   *PostAdded   // without a cursor; nil if there is no post
	users   []int64      // the recipients, ascending
	facts   atomic.Int64 // how many reads for all viewers were made since the verdict

	// results are for all events except PostUpdated. Subscribers that already have the post
	// receive PostUpdated, and the others receive PostAdded from the same event.
	results, updateResults batch.Results
}

// forAll returns the results. It returns nil for an event that one user receives.
func (e *sharedEvent) forAll() *batch.Results {
	if e == nil {
		return nil
	}
	return &e.results
}

// forUpdates is forAll for PostUpdated.
func (e *sharedEvent) forUpdates() *batch.Results {
	if e == nil {
		return nil
	}
	return &e.updateResults
}

// share returns the verdict on the post of an event for all recipients of the message. The process
// reads it once, after the message arrived and after the last change in this process that hid
// anything.
func (s *Streams) share(ctx context.Context, ev live.Event) (*sharedEvent, error) {
	found, err := ev.Batch.Shared.Get(ctx, s.holds, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, turnTimeout)
		defer cancel()
		v, err := s.posts.Judge(ctx, ev.Post, ev.Batch.Users)
		e := &sharedEvent{verdict: v, until: time.Now().Add(verdictLasts), users: ev.Batch.Users}
		if v.Post != nil {
			e.added = &PostAdded{PostEvent: PostEvent{Edge: paging.Edge[ent.Post]{Score: float64(ev.Post), Node: v.Post}, Results: e.forAll(), shared: e}}
		}
		return e, err
	})
	if err != nil {
		return nil, err
	}
	return found.(*sharedEvent), nil
}

// holds reports whether the verdict of a *sharedEvent may still be used: it has not expired, and
// this process has hidden nothing since.
func (s *Streams) holds(found any) bool {
	e := found.(*sharedEvent)
	return time.Now().Before(e.until) && e.verdict.Version == s.posts.Version()
}

// shared returns the result of share, if there is one that still holds, or nil. It never waits.
func (s *Streams) shared(ev live.Event) *sharedEvent {
	found, ok := ev.Batch.Shared.Latest()
	if !ok || !s.holds(found) {
		return nil
	}
	return found.(*sharedEvent)
}

// prepare reads the verdict before the hub notifies any stream of the event. If that fails, each
// stream tries again itself.
func (s *Streams) prepare(ctx context.Context, ev live.Event) {
	if _, err := s.share(ctx, ev); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "event not prepared for many", "post", ev.Post, "error", err)
	}
}

// Shared returns the event that Next would return, if several users receive it and nothing has to be
// read first. All streams get the same event, without a cursor. The event stays in the stream until
// TakeShared takes it. If ok is false, the reader must call Next.
//
// Cost: none.
func (s *Stream) Shared() (event Event, ok bool) {
	if s.signedOut.Load() || s.resuming != nil || s.ended || len(s.ready)+len(s.backlog.items) > 0 || s.beatDue.Load() || s.visitDue.Load() || s.removals >= journalLag || s.namesMany() {
		return nil, false
	}
	ev, ok := s.sub().Peek()
	if !ok || ev.Kind != live.Added || ev.Batch == nil {
		return nil, false
	}
	e := s.streams.shared(ev)
	switch post := ev.Post; {
	case e == nil || !e.verdict.Sees(s.viewer.ID) || e.added == nil,
		s.client.MayHave(post) || s.streams.home.Arrivals.MayBeLate(post):
		return nil, false
	}
	return e.added, true
}

// TakeShared takes the event that Shared has just returned, and records it as sent. It returns false,
// and takes nothing, if the verdict no longer holds.
func (s *Stream) TakeShared(event Event) bool {
	added := event.(*PostAdded)
	ev, ok := s.sub().Peek()
	if !ok || ev.Batch == nil || s.streams.shared(ev) != added.shared {
		return false
	}
	s.sub().Take()
	s.took(added.Edge.Node.ID)
	s.client.Advance(s.sub().Covered()) // see step
	return true
}

// AppendOwn appends this stream's cursor for the event that TakeShared has just taken.
func (s *Stream) AppendOwn(b []byte, event Event) []byte {
	return s.client.AppendCursor(b, s.viewer, event.(*PostAdded).Edge.Node.ID)
}

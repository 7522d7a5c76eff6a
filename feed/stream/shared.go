package stream

import (
	"context"
	"sync"
	"sync/atomic"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/live"
)

// sharedEvent is an event that several users of this process receive at the same time. It holds the
// verdict on the post, and caches results that are computed once for all viewers. It is nil for an
// event that one user receives.
type sharedEvent struct {
	verdict visibility.Verdict
	added   *PostAdded   // without a cursor; nil if there is no post
	users   []int64      // the recipients, ascending
	facts   atomic.Int64 // how many reads for all viewers were made since the verdict

	answers sync.Map // of *answer
	latest  atomic.Pointer[answer]
}

// answer is a result that is computed once for all viewers.
type answer struct {
	key  any
	find func() any    // a sync.OnceValue
	done chan struct{} // closed when find has returned
}

// Once returns the result of made for the key. It calls made once for all viewers who receive the
// event. On a nil event it returns nil.
func (e *sharedEvent) Once(key any, made func() any) any {
	if e == nil {
		return nil
	}
	a, mine := e.answer(key, made)
	if mine {
		defer close(a.done)
	}
	return a.find()
}

// Soon is like Once, but never blocks. If the result is not ready, another goroutine computes it,
// and Soon returns a channel that is closed when the result is ready.
func (e *sharedEvent) Soon(key any, made func() any) (result any, wait <-chan struct{}) {
	a, mine := e.answer(key, made)
	if mine {
		go func() {
			defer close(a.done)
			defer func() { _ = recover() }() // every caller that asks for the result panics, too
			a.find()
		}()
	}
	select {
	case <-a.done:
		return a.find(), nil
	default:
		return nil, a.done
	}
}

// Made returns the result for the key. ok is false if it is not computed yet.
func (e *sharedEvent) Made(key any) (result any, ok bool) {
	if e == nil {
		return nil, false
	}
	a := e.latest.Load() // usually all callers use one key
	if a == nil || a.key != key {
		found, ok := e.answers.Load(key)
		if !ok {
			return nil, false
		}
		a = found.(*answer)
		e.latest.Store(a)
	}
	select {
	case <-a.done:
		return a.find(), true
	default:
		return nil, false
	}
}

// answer returns the answer for the key. If mine is true, the caller has to compute it.
func (e *sharedEvent) answer(key any, made func() any) (a *answer, mine bool) {
	if found, ok := e.answers.Load(key); ok {
		return found.(*answer), false
	}
	found, taken := e.answers.LoadOrStore(key, &answer{key, sync.OnceValue(made), make(chan struct{})})
	return found.(*answer), !taken
}

// share returns the verdict on the post of an event for all recipients of the message. The process
// reads it once, after the message arrived and after the last change in this process that hid
// anything.
func (s *Streams) share(ctx context.Context, ev live.Event) (*sharedEvent, error) {
	return live.Share(ev.Batch, verdictLasts, s.holds, func(users []int64) (*sharedEvent, error) {
		v, err := s.posts.Judge(ctx, ev.Post, users)
		e := &sharedEvent{verdict: v, users: users}
		if v.Post != nil {
			e.added = &PostAdded{Edge: paging.Edge[ent.Post]{Score: float64(ev.Post), Node: v.Post}, sharedEvent: e}
		}
		return e, err
	})
}

// holds reports whether this process has hidden nothing since the verdict.
func (s *Streams) holds(e *sharedEvent) bool { return e.verdict.Version == s.posts.Version() }

// prepare reads the verdict before the hub notifies any stream of the event. If that fails, each
// stream tries again itself.
func (s *Streams) prepare(ctx context.Context, ev live.Event) {
	if e, ok := live.Found[*sharedEvent](ev.Batch); ok && s.holds(e) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	if _, err := s.share(ctx, ev); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "event not prepared for many", "post", ev.Post, "error", err)
	}
}

// TellBy sets a function that is called instead of wake when an event for several users is ready. tell
// may call [Stream.Shared] and send the event. It must not block, because that delays the other
// streams. If tell returns a channel, it is called again when the channel is closed.
func (s *Stream) TellBy(tell func() (wait <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	s.sub.TellBy(tell)
}

// Shared returns the event that Next would return, if several users receive it and nothing has to be
// read first. All streams get the same event, without a cursor. The event stays in the stream until
// TakeShared takes it. If ok is false, the reader must call Next.
//
// Cost: none.
func (s *Stream) Shared() (event Event, ok bool) {
	if s.resuming != nil || s.ended || len(s.ready)+len(s.backlog.items) > 0 || s.beatDue.Load() || s.visitDue.Load() || s.removals >= journalLag || s.namesMany() {
		return nil, false
	}
	ev, ok := s.sub.Peek()
	if !ok || ev.Kind != live.Added || ev.Batch == nil {
		return nil, false
	}
	e, ok := live.Found[*sharedEvent](ev.Batch)
	switch post := ev.Post; {
	case !ok || e == nil || !e.verdict.Sees(s.viewer.ID) || e.added == nil,
		s.client.MayHave(post) || s.streams.home.Arrivals.MayBeLate(post):
		return nil, false
	}
	return e.added, true
}

// TakeShared takes the event that Shared has just returned, and records it as sent. It returns false,
// and takes nothing, if the verdict no longer holds.
func (s *Stream) TakeShared(event Event) bool {
	added := event.(*PostAdded)
	ev, ok := s.sub.Peek()
	if !ok {
		return false
	}
	if e, lasts := live.Found[*sharedEvent](ev.Batch); !lasts || e != added.sharedEvent || !s.streams.holds(e) {
		return false
	}
	s.sub.Take()
	s.took(added.Edge.Node.ID)
	s.client.Advance(s.sub.Covered()) // see step
	return true
}

// AppendOwn appends this stream's cursor for the event that TakeShared has just taken.
func (s *Stream) AppendOwn(b []byte, event Event) []byte {
	return s.client.AppendCursor(b, s.viewer, event.(*PostAdded).Edge.Node.ID)
}

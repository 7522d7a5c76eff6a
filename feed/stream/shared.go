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

// sharedEvent is an event that many streams of this process bring at the same time.
// It has the verdict on the post, and the facts that are read for all viewers at once. It
// is nil for an event that only one stream brings.
type sharedEvent struct {
	verdict visibility.Verdict
	added   *PostAdded   // without a cursor; nil when there is no post
	users   []int64      // ascending
	facts   atomic.Int64 // how many have been read since the verdict

	answers sync.Map // of *answer
	latest  atomic.Pointer[answer]
}

// answer is what is found out once for all.
type answer struct {
	key  any
	find func() any    // the same at each call
	done chan struct{} // closed when it is found
}

// Once returns the result of made for the key. It calls made once for all viewers
// who get the event. It returns nil when only one viewer gets it.
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

// Soon is Once for a caller that must not wait: until the channel that it returns is
// closed, another goroutine finds the result out.
func (e *sharedEvent) Soon(key any, made func() any) (result any, wait <-chan struct{}) {
	a, mine := e.answer(key, made)
	if mine {
		go func() {
			defer close(a.done)
			defer func() { _ = recover() }() // whoever asks for the result panics, too
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

// Made returns the result of made for the key, if it was found out before; else ok is false.
func (e *sharedEvent) Made(key any) (result any, ok bool) {
	if e == nil {
		return nil, false
	}
	a := e.latest.Load() // as a rule all ask for the same
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

// answer returns that to the key; mine says that it is up to the caller to find it.
func (e *sharedEvent) answer(key any, made func() any) (a *answer, mine bool) {
	if found, ok := e.answers.Load(key); ok {
		return found.(*answer), false
	}
	found, taken := e.answers.LoadOrStore(key, &answer{key, sync.OnceValue(made), make(chan struct{})})
	return found.(*answer), !taken
}

// share gives the verdict on the post of an event for all recipients of the message,
// once in the process: it is read after the message arrived and after the last change
// here that hid anything.
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

// holds reports whether nothing has been hidden here since the verdict.
func (s *Streams) holds(e *sharedEvent) bool { return e.verdict.Version == s.posts.Version() }

// prepare gives the verdict before any stream is told of the event. If it fails, the
// streams try again, each by itself.
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

// TellBy has tell called in place of wake when an event for many has come. In tell the
// reader may ask for it, by [Stream.Shared], and send it. It must not wait for anything,
// or it holds up the other streams: if it returns a channel, it is called again when that
// is closed.
func (s *Stream) TellBy(tell func() (wait <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	s.sub.TellBy(tell)
}

// Shared returns the event that Next returns next, if many get it and nothing has to
// be read or waited for: the same one for all, without a cursor. It takes nothing:
// TakeShared does. If ok is false, the reader has to ask Next.
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
		s.client.MayHave(post) || s.streams.home.MayBeLate(post):
		return nil, false
	}
	return e.added, true
}

// TakeShared takes the event that Shared has just returned, which is sent now. It
// returns false when the verdict holds no more.
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

// AppendOwn appends the cursor of the event that TakeShared has just taken.
func (s *Stream) AppendOwn(b []byte, event Event) []byte {
	return s.client.AppendCursor(b, s.viewer, event.(*PostAdded).Edge.Node.ID)
}

package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tideline/feed/session"
	"tideline/live"
)

// errStreamEnds says that the session of a stream has ended.
var errStreamEnds = errors.New("stream ends")

// startTimeout is how long a stream waits for the hub to subscribe. The hub cannot subscribe
// while Redis is unreachable.
const startTimeout = 10 * time.Second

// visitAgain is how long a stream waits after Redis did not answer a visit before it visits again.
// Until then, events may not be published to the stream: nothing is pushed to a user who is not active.
const visitAgain = 2 * time.Second

const (
	// turns is how many streams per processor catch up at the same time. When a process loses
	// its connection to Redis, all its streams catch up. The limit leaves SQL, Redis and
	// processors free for page reads.
	turns = 2
	// turnTimeout bounds one turn. A stream that takes longer is interrupted.
	turnTimeout = 30 * time.Second
)

// subscription is the part that all kinds of streams have in common: subscriptions at the hub, the
// session, timers, turns, and the events that wait for the reader. It has no goroutine. E is the
// type of the events.
type subscription[E any] struct {
	streams *Streams
	viewer  session.Viewer
	wake    func()

	ready []E // what next returns first
	ended bool
	err   error

	signedOut atomic.Bool
	unwatch   func() // stops watching the session; set before close can be called

	recipients []int64              // whose events the hub sends
	subs       []*live.Subscription // one for each recipient; changed with mu held, and only by the reader

	mu     sync.Mutex
	tell   func() (wait <-chan struct{}) // see SetTell
	timers []*time.Timer
	visits *time.Timer // lets the stream visit what it follows; set before the reader calls next
	closed bool
}

// open subscribes at the hub to the events of the recipients. The stream lasts until ctx ends.
func (s *subscription[E]) open(ctx context.Context, recipients ...int64) error {
	s.recipients, s.subs = recipients, make([]*live.Subscription, len(recipients))
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.listen(starting); err != nil {
		for _, sub := range s.subs {
			if sub != nil {
				sub.Close()
			}
		}
		return err
	}
	s.unwatch = s.streams.cfg.Sessions.Watch(s.viewer, func() {
		s.signedOut.Store(true)
		s.wake()
	})
	context.AfterFunc(ctx, s.close)
	return nil
}

// listen subscribes for each recipient that has no subscription, or whose subscription has ended.
func (s *subscription[E]) listen(ctx context.Context) error {
	for i, recipient := range s.recipients {
		if s.subs[i] != nil && !s.subs[i].Ended() {
			continue
		}
		sub, err := s.streams.cfg.Hub.Subscribe(ctx, recipient, s.wake)
		if err != nil {
			return fmt.Errorf("subscribe: %w", err)
		}
		s.mu.Lock()
		s.subs[i] = sub
		sub.SetTell(s.tell)
		closed := s.closed
		s.mu.Unlock()
		if closed {
			sub.Close()
		}
	}
	return nil
}

// tick sets due and wakes the reader once per interval, until the stream ends. It returns the timer.
func (s *subscription[E]) tick(due *atomic.Bool, every time.Duration) (timer *time.Timer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	timer = time.AfterFunc(every, func() {
		due.Store(true)
		s.wake()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			timer.Reset(every)
		}
	})
	if s.closed {
		timer.Stop()
	}
	s.timers = append(s.timers, timer)
	return timer
}

// visitSoon makes the next visit due after visitAgain, because Redis did not answer the last one.
func (s *subscription[E]) visitSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.visits.Reset(visitAgain)
	}
}

func (s *subscription[E]) close() {
	s.mu.Lock()
	s.closed = true
	subs, timers := slices.Clone(s.subs), s.timers
	s.mu.Unlock()
	s.unwatch()
	for _, timer := range timers {
		timer.Stop()
	}
	for _, sub := range subs {
		sub.Close() // wakes the reader
	}
}

// SetTell sets a function that is called instead of wake when an event for several users is ready. tell
// may call [Stream.Shared] and send the event. It must not block, because that delays the other
// streams. If tell returns a channel, it is called again when the channel is closed.
func (s *subscription[E]) SetTell(tell func() (wait <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	for _, sub := range s.subs {
		sub.SetTell(tell)
	}
}

// Ended reports whether Next will return no further event.
func (s *subscription[E]) Ended() bool { return s.ended && len(s.ready) == 0 }

// Err returns the error that ended the stream. A client that subscribes again after the last
// position receives the rest. Err is nil if the stream ended without an error.
func (s *subscription[E]) Err() error { return s.err }

func (s *subscription[E]) send(ev E) { s.ready = append(s.ready, ev) }

// next returns the next event. step does the next piece of work, if any, and reports whether there
// was some.
func (s *subscription[E]) next(ctx context.Context, step func(context.Context) (more bool, err error)) (event E, ok bool) {
	var none E
	for {
		if len(s.ready) > 0 {
			event, s.ready = s.ready[0], s.ready[1:]
			return event, true
		}
		if s.ended {
			return none, false
		}
		if ctx.Err() != nil {
			s.ended = true
			return none, false
		}
		more, err := step(ctx)
		switch {
		case errors.Is(err, errStreamEnds) || ctx.Err() != nil:
			s.ready, s.ended = nil, true
			s.close()
		case err != nil:
			s.interrupt(ctx, err)
		case !more && len(s.ready) == 0:
			return none, false
		}
	}
}

// interrupt ends the stream with an error.
func (s *subscription[E]) interrupt(ctx context.Context, err error) {
	s.streams.cfg.Logger.WarnContext(ctx, "subscription interrupted", "viewer", s.viewer.ID, "error", err)
	s.err, s.ended = err, true
	s.close()
}

// resubscribe replaces a live subscription that lagged behind, and calls catchUp in a turn. It
// returns an error if the subscription ended for another reason.
func (s *subscription[E]) resubscribe(ctx context.Context, sub *live.Subscription, catchUp func(context.Context) error) error {
	if err := sub.Err(); !errors.Is(err, live.ErrLagged) {
		return cmp.Or(err, ctx.Err(), errStreamEnds)
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.listen(starting); err != nil {
		return err
	}
	return s.inTurn(ctx, catchUp)
}

// inTurn waits for a turn and calls do in it.
func (s *subscription[E]) inTurn(ctx context.Context, do func(context.Context) error) error {
	s.streams.waiting.Add(1)
	select {
	case s.streams.turns <- struct{}{}:
		s.streams.waiting.Add(-1)
	case <-ctx.Done():
		s.streams.waiting.Add(-1)
		return ctx.Err()
	}
	defer func() { <-s.streams.turns }()
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	return do(ctx)
}

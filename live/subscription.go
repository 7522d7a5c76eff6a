package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Subscription is one reader of the events of one user. It has no goroutine, and
// takes about 200 bytes while its buffer is empty.
type Subscription struct {
	hub   *Hub
	user  int64
	wake  func()
	ready chan struct{} // closed when registered or ended

	// Guarded by hub.mu.
	registered bool

	mu    sync.Mutex                    // after hub.mu
	told  func() (wait <-chan struct{}) // see SetTell
	queue []Event                       // at most HubConfig.Buffer; when full, the subscription ends with ErrLagged
	ended bool
	err   error
}

// Subscribe returns a subscription to the events of a user (a positive id). It waits
// until the hub is connected and the user is registered in Redis: every event that
// is published after that reaches the subscription, or a [Resync] follows. It waits
// until ctx is done, so ctx needs a deadline; ctx is not used afterwards. It returns
// [ErrClosed] when the hub is stopped.
//
// The hub calls wake when there is an event to take and when the subscription ends,
// possibly before Subscribe has returned. The hub waits for wake, so wake must return
// at once, and it must not call the hub or the subscription. For an event for several
// users, wake is called after the event is prepared ([Hub.Prepare]).
//
// Cost: the first subscription of a user waits for one round trip, which it shares with
// others that begin at the same time. A further one waits for none.
func (h *Hub) Subscribe(ctx context.Context, user int64, wake func()) (*Subscription, error) {
	if user <= 0 {
		return nil, fmt.Errorf("live: subscribe: %d is not a user id", user)
	}
	s := &Subscription{hub: h, user: user, wake: wake, ready: make(chan struct{})}
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil, ErrClosed
	}
	h.subs[user] = append(h.subs[user], s)
	h.touch(user)
	h.mu.Unlock()

	select {
	case <-s.ready:
		if err := s.Err(); err != nil {
			return nil, err
		}
		return s, nil
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("live: subscribe: %w", ctx.Err())
	}
}

// Take removes and returns the next event, if there is one. It never waits. After the
// subscription has ended, it still returns the events that came before.
func (s *Subscription) Take() (ev Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return ev, false
	}
	ev = s.queue[0]
	s.queue[0] = Event{}
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return ev, true
}

// Peek returns the next event, if there is one, and leaves it for Take.
func (s *Subscription) Peek() (ev Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return ev, false
	}
	return s.queue[0], true
}

// Covered returns the newest mark (see [HubConfig.Mark]) for which this holds: the
// reader has taken every event that was published to the user after Subscribe
// returned and before the mark was taken, or the [Resync] that followed a loss.
// Covered returns 0 while an event waits and after the subscription has ended.
//
// The mark is some seconds old. It does not advance while the connection is broken or
// silent, or while presence may be incomplete. So it never covers time in which the
// process was stopped.
//
// Cost: none.
func (s *Subscription) Covered() int64 {
	mark := s.hub.covered.Load() // first: events from before the mark are in the queue by now
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 || s.ended {
		return 0
	}
	return mark
}

// Ended reports whether the subscription has ended. Events that wait can still be
// taken.
func (s *Subscription) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Err returns why the subscription ended: [ErrLagged] if its reader was too slow,
// [ErrClosed] if the hub stopped, nil after Close and while it has not ended.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the subscription. It may be called repeatedly and from any goroutine,
// but not from wake.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.end(s, nil)
}

// offer appends the event to the queue and reports whether there was room. It never waits and
// does not wake the reader.
func (s *Subscription) offer(ev Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.hub.cfg.Buffer {
		return false
	}
	s.queue = append(s.queue, ev)
	return true
}

// end ends a subscription and removes it from the hub. The caller holds h.mu for writing.
func (h *Hub) end(s *Subscription, err error) {
	s.mu.Lock()
	already := s.ended
	if !already {
		s.ended, s.err = true, err
	}
	s.mu.Unlock()
	if already {
		return
	}
	rest := slices.DeleteFunc(h.subs[s.user], func(other *Subscription) bool { return other == s })
	if len(rest) == 0 {
		delete(h.subs, s.user)
		h.touch(s.user)
	} else {
		h.subs[s.user] = rest
	}
	if !s.registered {
		close(s.ready)
	}
	s.wake()
}

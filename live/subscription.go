package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Subscription is one reader of the events of one user. It costs no goroutine,
// and while nothing waits in it about 200 bytes.
type Subscription struct {
	hub   *Hub
	user  int64
	wake  func()
	ready chan struct{} // closed when registered or ended

	// Guarded by hub.mu.
	registered bool

	mu    sync.Mutex                    // after hub.mu
	told  func() (wait <-chan struct{}) // see TellBy
	queue []Event                       // when full: the subscription ends with ErrLagged
	ended bool
	err   error
}

// Subscribe returns the events of a user (a positive id), once the hub is
// connected and the user registered: what is published after it returned
// reaches the subscription, or a [Resync] follows. It waits for that until ctx
// is done, so give it a deadline; ctx is not used afterwards. It returns
// [ErrClosed] when the hub is stopped.
//
// Whenever there is something to take, the end included, wake is called, also
// before Subscribe has returned. The hub waits for it: it must return at once and
// must not call the hub or the subscription. For an event of many it is called when
// that is prepared, see [Hub.Prepare].
//
// Cost: the user's first subscription waits for one round trip, shared with others
// that begin at the same time; a further one for none.
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

// Take returns the next event, if there is one. It never waits. After the end it
// still returns the events that came before.
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

// Peek returns the event that Take returns next, if there is one.
func (s *Subscription) Peek() (ev Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return ev, false
	}
	return s.queue[0], true
}

// Covered returns a mark, as [HubConfig.Mark] has it: the reader has taken every
// event that was published to the user before the mark was taken, and after
// Subscribe returned, or the [Resync] that followed its loss. It returns 0 when it
// knows of none: an event waits, or the subscription has ended.
//
// The mark is one of some moments ago, and it stays while the hub cannot tell:
// while the connection is broken or silent, or presence is not known to be whole.
// So it says nothing of a time in which the process was stopped.
//
// Cost: none.
func (s *Subscription) Covered() int64 {
	mark := s.hub.covered.Load() // before the look: what came before the mark is in the queue by now
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 || s.ended {
		return 0
	}
	return mark
}

// Ended reports whether no event will ever come any more; those that wait can
// still be taken.
func (s *Subscription) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Err says why the subscription ended: nil while it has not, and after Close;
// [ErrLagged] when its reader was too slow; [ErrClosed] when the hub stopped.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the subscription. It waits for nobody and may be called again, at
// any time and from anywhere but wake.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.end(s, nil)
}

// offer never waits; it answers whether there was room. The caller wakes the reader.
func (s *Subscription) offer(ev Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= s.hub.cfg.Buffer {
		return false
	}
	s.queue = append(s.queue, ev)
	return true
}

// end takes a subscription out of the hub. The caller holds h.mu for writing.
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

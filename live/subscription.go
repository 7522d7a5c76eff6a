package live

import (
	"context"
	"fmt"
	"slices"
)

// Subscription is one reader of the events of one user.
type Subscription struct {
	hub    *Hub
	user   int64
	events chan Event    // when full: the subscription ends with ErrLagged
	ready  chan struct{} // closed when registered or ended

	// Guarded by hub.mu.
	registered bool
	ended      bool
	err        error
}

// Subscribe returns the events of a user (a positive id), once the hub is
// connected and the user registered: what is published after it returned
// reaches the subscription, or a [Resync] follows. It waits for that until ctx
// is done, so give it a deadline; ctx is not used afterwards. It returns
// [ErrClosed] when the hub is stopped.
//
// The caller must read Events until it is closed, or call Close.
func (h *Hub) Subscribe(ctx context.Context, user int64) (*Subscription, error) {
	if user <= 0 {
		return nil, fmt.Errorf("live: subscribe: %d is not a user id", user)
	}
	s := &Subscription{
		hub:    h,
		user:   user,
		events: make(chan Event, h.cfg.Buffer),
		ready:  make(chan struct{}),
	}
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil, ErrClosed
	}
	h.subs[user] = append(h.subs[user], s)
	h.count++
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

// Events is closed when the subscription ends; what was in its buffer can still
// be read.
func (s *Subscription) Events() <-chan Event { return s.events }

// Err says why the subscription ended: nil while it has not, and after Close;
// [ErrLagged] when its reader was too slow; [ErrClosed] when the hub stopped.
func (s *Subscription) Err() error {
	s.hub.mu.RLock()
	defer s.hub.mu.RUnlock()
	return s.err
}

// Close ends the subscription. It waits for nobody and may be called again, at
// any time and from anywhere.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.end(s, nil)
}

// end takes a subscription out of the hub. The caller holds h.mu for writing,
// and so nobody is sending on the channel that is closed here.
func (h *Hub) end(s *Subscription, err error) {
	if s.ended {
		return
	}
	s.ended, s.err = true, err
	rest := slices.DeleteFunc(h.subs[s.user], func(other *Subscription) bool { return other == s })
	if len(rest) == 0 {
		delete(h.subs, s.user)
		h.touch(s.user)
	} else {
		h.subs[s.user] = rest
	}
	h.count--
	close(s.events)
	if !s.registered {
		close(s.ready)
	}
}

package live

import (
	"context"
	"runtime"
	"sync"

	"tideline/internal/trace"
)

const (
	// tellTogether is how many subscriptions one goroutine notifies. If a message has as many,
	// the author's next messages wait for it.
	tellTogether = 256
	// prepareEach: an event is prepared again after each so many subscriptions. That costs
	// something only if the earlier result no longer holds.
	prepareEach = 64
)

// Prepare sets a function that computes Batch.Shared, which the readers of an event
// need. The hub calls it for each message that adds or removes a post for several users, and
// notifies their subscriptions when it has returned. The event is in their buffers before that.
// prepare may read from stores, and handles its own errors: each reader then computes the result
// itself. ctx ends with the hub.
//
// Without a function, the hub wakes the readers at once.
func (h *Hub) Prepare(prepare func(ctx context.Context, ev Event)) { h.prepare.Store(&prepare) }

// SetTell sets a function that is called instead of wake when an event for several users is
// prepared. The caller holds no lock, so tell may take the event and handle it. Other subscriptions
// wait until tell returns, so it must not block. If it returns a channel, it is called again when the
// channel is closed.
func (s *Subscription) SetTell(tell func() (wait <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = tell
}

// tell prepares an event and notifies its subscriptions. It does not run on the receiving goroutine,
// so a slow prepare delays no message of another author. It returns when all subscriptions have been
// notified, except those whose tell returned a channel.
func (h *Hub) tell(ctx context.Context, prepare func(), subs []*Subscription) {
	prepare()
	parts := min(runtime.GOMAXPROCS(0), len(subs)/tellTogether+1)
	var walks sync.WaitGroup
	for i := range parts {
		part := subs[i*len(subs)/parts : (i+1)*len(subs)/parts]
		walks.Go(func() { h.tellEach(ctx, prepare, part) })
	}
	walks.Wait()
}

// tellEach notifies some of the subscriptions. Those whose tell returned a channel are notified again
// later, and do not delay the others.
func (h *Hub) tellEach(ctx context.Context, prepare func(), subs []*Subscription) {
	ctx, span := trace.Begin(ctx, "tell subscriptions") // includes the socket writes of tell
	span.Int("tideline.subscriptions", int64(len(subs)))
	defer span.End(nil)
	waiting := map[<-chan struct{}][]*Subscription{}
	for i, s := range subs {
		if i%prepareEach == prepareEach-1 && ctx.Err() == nil {
			prepare()
		}
		if wait := s.tell(); wait != nil {
			waiting[wait] = append(waiting[wait], s)
		}
	}
	for wait, subs := range waiting {
		h.telling.Go(func() {
			select {
			case <-wait:
			case <-ctx.Done():
				return
			}
			prepare()
			h.tellEach(ctx, prepare, subs)
		})
	}
}

func (s *Subscription) tell() (wait <-chan struct{}) {
	s.mu.Lock()
	tell := s.told
	s.mu.Unlock()
	if tell == nil {
		s.wake()
		return nil
	}
	return tell()
}

package live

import (
	"context"
	"runtime"
	"sync"

	"tideline/internal/trace"
)

const (
	// tellTogether is how many subscriptions of one message are worth a goroutine, and
	// have the author's next ones wait in line.
	tellTogether = 256
	// prepareEach is after how many subscriptions an event is prepared again. Only
	// the first time costs anything, unless what was found out then holds no more.
	prepareEach = 64
)

// Prepare sets a function that finds out, by [Share], what the readers of an event for
// many need. The hub calls the function for each message that adds or removes a post for several
// users, and tells their subscriptions when it has returned: the events wait in them
// from the beginning. It may read from stores; ctx ends with the hub. An error is
// its own business: the readers then find out by themselves.
//
// Without it, the readers are woken at once, and wait for the first of them.
func (h *Hub) Prepare(prepare func(ctx context.Context, ev Event)) { h.prepare.Store(&prepare) }

// TellBy has tell called in place of wake for an event of many that is prepared.
// No lock is held then, so tell may take the event and deal with it at once. As long
// as that lasts the next subscriptions wait: tell must not wait for anything. If it
// returns a channel, it is called again when that is closed.
func (s *Subscription) TellBy(tell func() (wait <-chan struct{})) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = tell
}

// tell tells the subscriptions of one message that something waits in them. It is
// not the goroutine that receives: nothing that prepare waits for holds up the message
// of another author. It returns when all have been told, but those that have to wait.
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

// tellEach is tell for some of the subscriptions. Those that have to wait do not hold
// up the others.
func (h *Hub) tellEach(ctx context.Context, prepare func(), subs []*Subscription) {
	ctx, span := trace.Begin(ctx, "tell subscriptions") // what tell sends is written to the socket in it
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

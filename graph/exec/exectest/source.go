package exectest

import (
	"context"
	"sync"
)

// Source is the source of a subscription whose events come by a channel.
type Source struct {
	mu    sync.Mutex
	queue []any
	ended bool
	err   error
}

// Interruption, sent by the channel of a source, interrupts it.
type Interruption struct{}

func (Interruption) Error() string { return "interrupted" }

// From is the source of what comes by the channel until that is closed or ctx is
// done. It takes everything at once, and then calls wake.
func From(ctx context.Context, events <-chan any, wake func()) *Source {
	s := &Source{}
	go func() {
		for s.take(ctx, events) {
			wake()
		}
		wake()
	}()
	return s
}

func (s *Source) take(ctx context.Context, events <-chan any) (more bool) {
	var event any
	select {
	case event, more = <-events:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if broken, ok := event.(Interruption); ok {
		s.err, more = broken, false
	}
	if s.ended = !more; more {
		s.queue = append(s.queue, event)
	}
	return more
}

// Next see exec.Source.
func (s *Source) Next(context.Context) (event any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, false
	}
	event, s.queue = s.queue[0], s.queue[1:]
	return event, true
}

// Ended see exec.Source.
func (s *Source) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && len(s.queue) == 0
}

// Err see exec.Source.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

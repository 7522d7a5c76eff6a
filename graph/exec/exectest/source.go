package exectest

import (
	"context"
	"sync"
)

// Source is a subscription's source that receives its events from a channel.
type Source struct {
	mu    sync.Mutex
	queue []any
	ended bool
	err   error
}

// Interruption is an event that interrupts the source.
type Interruption struct{}

func (Interruption) Error() string { return "interrupted" }

// From makes a source of the events from the channel, until the channel is closed or ctx is done. It takes
// each event at once and then calls wake.
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

// Next implements exec.Source.
func (s *Source) Next(context.Context) (event any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil, false
	}
	event, s.queue = s.queue[0], s.queue[1:]
	return event, true
}

// Withdrawn is an event for which Confirm returns false.
type Withdrawn struct{}

// Confirm implements exec.Source.
func (s *Source) Confirm(_ context.Context, event any, _ bool) bool {
	_, withdrawn := event.(Withdrawn)
	return !withdrawn
}

// Ended implements exec.Source.
func (s *Source) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended && len(s.queue) == 0
}

// Err implements exec.Source.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

package exectest

import (
	"context"
	"sync"
)

// Source is a subscription's source whose events come through a channel.
type Source struct {
	mu    sync.Mutex
	queue []any
	tell  func() <-chan struct{}
	ended bool
	err   error
}

// Burst is events that come at once.
type Burst []any

// Broadcast is an event for many, which has the value for all of them.
type Broadcast struct{ Value any }

// Once implements exec.Common.
func (Broadcast) Once(_ any, made func() any) any { return made() }

// Soon implements exec.Common.
func (Broadcast) Soon(_ any, made func() any) (result any, wait <-chan struct{}) { return made(), nil }

// Neutral implements exec.Common.
func (b Broadcast) Neutral(string) any { return b.Value }

// AppendOwn implements exec.Common.
func (Broadcast) AppendOwn(b []byte) []byte { return b }

// Interruption interrupts a source when it is sent through its channel.
type Interruption struct{}

func (Interruption) Error() string { return "interrupted" }

// From makes a source of the events from the channel until the channel is closed or
// ctx is done. It takes each event at once, and then calls wake, or what TellBy has set if
// the event, or the first of a burst, is for many.
func From(ctx context.Context, events <-chan any, wake func()) *Source {
	s := &Source{}
	go func() {
		for s.take(ctx, events) {
			s.mu.Lock()
			tell := s.tell
			s.mu.Unlock()
			if _, many := s.Shared(); many && tell != nil {
				tell()
			} else {
				wake()
			}
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
	burst, several := event.(Burst)
	switch s.ended = !more; {
	case several:
		s.queue = append(s.queue, burst...)
	case more:
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

// Withdrawn is an event that Confirm finds to be no longer true.
type Withdrawn struct{}

// Confirm implements exec.Source.
func (s *Source) Confirm(_ context.Context, event any, _ bool) bool {
	_, withdrawn := event.(Withdrawn)
	return !withdrawn
}

// Shared implements exec.Source.
func (s *Source) Shared() (event any, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		event, ok = s.queue[0].(Broadcast)
	}
	return event, ok
}

// Waits implements exec.Source.
func (s *Source) Waits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || len(s.queue) > 0
}

// TakeShared implements exec.Source.
func (s *Source) TakeShared(any) bool {
	_, ok := s.Next(context.Background())
	return ok
}

// TellBy implements exec.Source.
func (s *Source) TellBy(tell func() <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
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

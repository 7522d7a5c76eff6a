package queue

import (
	"context"
	"sync"
)

// slots bounds how many attempts of a pool run at once in this process, and counts how many run for
// each owner. Only the reader of the pool takes slots, so a free slot stays free until the reader
// takes it.
type slots struct {
	taken chan struct{} // one element per running attempt

	mu     sync.Mutex
	owners map[int64]int // number of running attempts by owner
}

func newSlots(n int) *slots {
	return &slots{taken: make(chan struct{}, n), owners: map[int64]int{}}
}

// wait waits for a free slot without taking it. It returns false if ctx ends first.
func (s *slots) wait(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case s.taken <- struct{}{}:
		<-s.taken
		return true
	case <-ctx.Done():
		return false
	}
}

// free returns how many slots are free.
func (s *slots) free() int { return cap(s.taken) - len(s.taken) }

// hasShare reports whether the owner has as many slots as it may have while others wait: half of
// them. Jobs without an owner, which have the owner 0, have no such limit.
func (s *slots) hasShare(owner int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return owner != 0 && s.owners[owner] >= max(1, cap(s.taken)/2)
}

// take takes a slot for an attempt of the owner.
func (s *slots) take(owner int64) {
	s.taken <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[owner]++
}

// release returns a slot.
func (s *slots) release(owner int64) {
	s.mu.Lock()
	if s.owners[owner]--; s.owners[owner] == 0 {
		delete(s.owners, owner)
	}
	s.mu.Unlock()
	<-s.taken
}

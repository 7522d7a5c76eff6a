package queue

import (
	"context"
	"fmt"
	"sync"
)

// slots bounds how many attempts of a pool run at once in this process. The bound may
// change at any time.
type slots struct {
	mu          sync.Mutex
	size, taken int
	more        chan struct{} // has an element when there may be a free one again; the reader alone waits
}

func newSlots(size int) *slots { return &slots{size: size, more: make(chan struct{}, 1)} }

// wait waits for a free slot, which it does not take, and reports false when ctx has ended.
func (s *slots) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		if s.free() > 0 {
			return true
		}
		select {
		case <-s.more:
		case <-ctx.Done():
		}
	}
	return false
}

// free returns how many slots are free, below 0 after the pool has shrunk.
func (s *slots) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size - s.taken
}

// take takes a slot, unless none is free.
func (s *slots) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.size {
		return false
	}
	s.taken++
	return true
}

// release gives a slot back.
func (s *slots) release() {
	s.mu.Lock()
	s.taken--
	s.mu.Unlock()
	s.wake()
}

func (s *slots) resize(size int) {
	s.mu.Lock()
	s.size = size
	s.mu.Unlock()
	s.wake()
}

func (s *slots) wake() {
	select {
	case s.more <- struct{}{}:
	default: // the reader will look anyway
	}
}

// Size is how many jobs of the pool this process runs at once; 0: it leaves them to others.
func (q *Queue) Size(p Pool) int {
	s := q.slots[p]
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Resize has this process run so many jobs of the pool at once from now on, 1 to MaxWorkers. A
// pool that grows takes more jobs at once. One that shrinks takes none until enough of those
// under way have ended, each in its time; a job that Redis delivers just then is handed back, and
// costs no attempt. Errors: out of bounds; a pool that this process leaves to others.
func (q *Queue) Resize(p Pool, n int) error {
	s := q.slots[p]
	if s == nil {
		return fmt.Errorf("queue: this process has no workers for pool %q", p)
	}
	if err := validSize(p, n); err != nil {
		return err
	}
	s.resize(n)
	return nil
}

func validSize(p Pool, n int) error {
	if n < 1 || n > MaxWorkers {
		return fmt.Errorf("queue: %d workers for pool %q: it must be 1 to %d", n, p, MaxWorkers)
	}
	return nil
}

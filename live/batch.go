package live

import (
	"sync"
	"time"
)

// Batch is the recipients of one message in this process. It exists from the arrival
// of the message on.
type Batch struct {
	// Users are the recipients, ascending. They must not be changed.
	Users []int64

	mu   sync.Mutex
	last *finding
}

// finding is what one caller of Share finds out for all.
type finding struct {
	done  chan struct{} // closed when value and until are set
	value any           // nil: the caller failed
	until time.Time
}

// Share returns what find finds out for all of the batch. The first caller calls
// find. The others wait and get the same value, as long as it lasts and holds
// approves of it. An error goes to the caller of find alone. With a nil batch every
// caller calls find.
func Share[T any](b *Batch, lasts time.Duration, holds func(T) bool, find func(users []int64) (T, error)) (T, error) {
	if b == nil {
		return find(nil)
	}
	for {
		f, mine := b.join()
		if mine {
			defer close(f.done)
			value, err := find(b.Users)
			if err == nil {
				f.value, f.until = value, time.Now().Add(lasts)
			}
			return value, err
		}
		// Thousands wait at once: a lock would let them through one by one.
		<-f.done
		if value, ok := f.value.(T); ok && time.Now().Before(f.until) && holds(value) {
			return value, nil
		}
		b.leave(f)
	}
}

// join returns the finding that is under way, or was made. If mine is true, it is up
// to the caller to make it.
func (b *Batch) join() (f *finding, mine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last, mine = &finding{done: make(chan struct{})}, true
	}
	return b.last, mine
}

// leave drops a finding that is no longer good, so that the next caller makes another.
func (b *Batch) leave(f *finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == f {
		b.last = nil
	}
}

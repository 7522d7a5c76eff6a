package live

import (
	"sync"
	"time"
)

// Batch is the recipients of one message in this process. It came into being
// when the message had arrived.
type Batch struct {
	// Users are the recipients, ascending. They must not be changed.
	Users []int64

	mu   sync.Mutex
	last *finding
}

// finding is what somebody finds out for all.
type finding struct {
	done  chan struct{} // closed when the rest is there
	value any           // nil: it failed
	until time.Time
}

// Share returns what find finds out for all of the batch: whoever asks first
// calls find, the others wait and are given the same, for as long as it lasts and
// holds approves of it. An error is the caller's alone. Of a nil batch everybody
// finds out alone.
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

// join is what is being found, or has been; mine when that is up to the caller.
func (b *Batch) join() (f *finding, mine bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last, mine = &finding{done: make(chan struct{})}, true
	}
	return b.last, mine
}

// leave has what is no longer good found anew.
func (b *Batch) leave(f *finding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == f {
		b.last = nil
	}
}

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

	mu    sync.Mutex
	found any
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if found, ok := b.found.(T); ok && time.Now().Before(b.until) && holds(found) {
		return found, nil
	}
	found, err := find(b.Users)
	if err == nil {
		b.found, b.until = found, time.Now().Add(lasts)
	}
	return found, err
}

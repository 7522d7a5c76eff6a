package live

import (
	"context"
	"sync/atomic"
	"time"

	"tideline/internal/trace"
)

// Batch is the recipients of one message in this process. It exists from the arrival
// of the message on.
type Batch struct {
	// Users are the recipients, ascending. They must not be changed.
	Users []int64

	last atomic.Pointer[finding]

	place  *trace.Place // of the message; nil if it is on no journey
	joined atomic.Bool
}

// Trace has the first reader that calls it go on with the journey of the message: one
// stands for all, for they do the same. For all others, and with a nil batch, ctx leaves
// the journey that it is on. It is a context of trace.Joinable.
func (b *Batch) Trace(ctx context.Context) {
	if b == nil || b.place == nil || !b.joined.CompareAndSwap(false, true) {
		trace.Join(ctx, nil)
		return
	}
	trace.Join(ctx, b.place)
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

// Found returns the result of [Share], if it lasts still. It waits for nobody.
func Found[T any](b *Batch) (value T, ok bool) {
	f := b.last.Load()
	if f == nil {
		return value, false
	}
	select {
	case <-f.done:
	default:
		return value, false
	}
	value, ok = f.value.(T)
	return value, ok && time.Now().Before(f.until)
}

// join returns the finding that is under way, or was made. If mine is true, it is up
// to the caller to make it.
func (b *Batch) join() (f *finding, mine bool) {
	for {
		if f = b.last.Load(); f != nil {
			return f, false
		}
		f = &finding{done: make(chan struct{})}
		if b.last.CompareAndSwap(nil, f) {
			return f, true
		}
	}
}

// leave drops a finding that is no longer good, so that the next caller makes another.
func (b *Batch) leave(f *finding) { b.last.CompareAndSwap(f, nil) }

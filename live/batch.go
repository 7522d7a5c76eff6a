package live

import (
	"context"
	"sync/atomic"
	"time"

	"tideline/internal/trace"
)

// Batch has the recipients of one message in this process, and the result that they share. It is
// created when the message arrives.
type Batch struct {
	// Users are the recipients, ascending. They must not be changed.
	Users []int64

	last atomic.Pointer[finding]

	place  *trace.Place // in the message's trace; nil if it has none
	joined atomic.Bool
}

// Trace makes ctx, a context of trace.Joinable, join the trace of the message. Only the first
// reader of the batch joins, because all readers do the same work. For the others, and on a nil
// batch, ctx leaves its trace.
func (b *Batch) Trace(ctx context.Context) {
	if b == nil || b.place == nil || !b.joined.CompareAndSwap(false, true) {
		trace.Join(ctx, nil)
		return
	}
	trace.Join(ctx, b.place)
}

// finding is the result that one caller of Share computes for all.
type finding struct {
	done  chan struct{} // closed when value and until are set
	value any           // nil if find failed
	until time.Time
}

// Share returns the result of find for all readers of the batch. The first caller calls find. The
// others wait and get the same value, for as long as lasts and while holds returns true for it; then
// one of them calls find again. An error goes only to the caller of find. On a nil batch every caller
// calls find.
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
		// Thousands may wait at the same time. A lock would release them one by one.
		<-f.done
		if value, ok := f.value.(T); ok && time.Now().Before(f.until) && holds(value) {
			return value, nil
		}
		b.leave(f)
	}
}

// Found returns the result of [Share], if there is one that has not expired. It never waits.
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

// join returns the current finding, finished or not. If mine is true, the caller has to compute it.
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

// leave drops an outdated finding, so that the next caller computes another one.
func (b *Batch) leave(f *finding) { b.last.CompareAndSwap(f, nil) }

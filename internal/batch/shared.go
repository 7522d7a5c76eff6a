package batch

import (
	"context"
	"sync"
	"sync/atomic"
)

// Shared keeps the value that a function returned last. Concurrent callers share one call of the
// function. The zero Shared is ready to use.
//
// It does not use x/sync/singleflight for three reasons: a panic of the function would end the
// process, the value would be lost when the call returns, and a caller could not look at the value
// without waiting.
type Shared[T any] struct{ latest atomic.Pointer[result[T]] }

// Get returns the latest value if holds returns true for it. Otherwise it calls find. Callers that
// come while find runs wait for its value, and return it if holds returns true for it. find may have read
// the value before this call of Get: a caller that must see its own write rejects an older value in
// holds.
//
// find runs in its own goroutine. Its context has the values of ctx but never ends, so that the other
// callers get their value even if ctx ends. find must bound its time. There is one call of find at a
// time, except after Forget. An error goes only to the caller that started the call. One of the
// waiting callers then calls find again, so that one failed read does not fail thousands of callers. A
// panic reaches all waiting callers. Errors and panics are not kept.
//
// Cost: constant if the latest value holds.
func (s *Shared[T]) Get(ctx context.Context, holds func(T) bool, find func(context.Context) (T, error)) (T, error) {
	for {
		r, started := s.join(ctx, find)
		if !r.ready() {
			select {
			case <-r.done: // releases thousands of waiting callers at once; a lock would do so one by one
			case <-ctx.Done():
				var none T
				return none, ctx.Err()
			}
		}
		value, err := r.get()
		if started || err == nil && holds(value) {
			return value, err
		}
		s.latest.CompareAndSwap(r, nil)
	}
}

// Latest returns the latest value, if there is one. It never waits.
func (s *Shared[T]) Latest() (value T, ok bool) {
	r := s.latest.Load()
	if r == nil || !r.ready() {
		return value, false
	}
	value, err := r.get()
	return value, err == nil
}

// Forget drops the value. A find that is under way answers only the callers that wait for it.
func (s *Shared[T]) Forget() { s.latest.Store(nil) }

// join returns the latest result, which may still be computed. If there is none, it starts to compute
// one, and started is true.
func (s *Shared[T]) join(ctx context.Context, find func(context.Context) (T, error)) (r *result[T], started bool) {
	for {
		if r = s.latest.Load(); r != nil {
			return r, false
		}
		r = newResult(func() (value T, err error) {
			failed := true
			defer func() {
				if failed {
					s.latest.CompareAndSwap(r, nil)
				}
			}()
			value, err = find(context.WithoutCancel(ctx))
			failed = err != nil
			return value, err
		})
		if s.latest.CompareAndSwap(nil, r) {
			go r.compute()
			return r, true
		}
	}
}

// Results keeps a value for each key. Each value is computed once. Results never drops a value, so it
// is meant for one event or one request. The zero Results is ready to use.
type Results struct{ byKey sync.Map } // of *result[any]

// Once returns the value of the key. The first caller calls find to compute it, and other callers wait
// for that call. If find panics, all callers panic. On a nil Results, Once returns nil.
func (r *Results) Once(key any, find func() any) any {
	if r == nil {
		return nil
	}
	result, created := r.join(key, find)
	if created {
		result.compute()
	}
	value, _ := result.get()
	return value
}

// Soon is like Once, but never blocks. If the value is not ready, another goroutine computes it, and
// Soon returns a channel that is closed when it is ready. It must not be called on a nil Results.
//
// Cost: 0.07 µs if the value is there (BenchmarkResultsSoon). A delivery to a live
// subscriber takes about 30 µs.
func (r *Results) Soon(key any, find func() any) (value any, wait <-chan struct{}) {
	result, created := r.join(key, find)
	if created {
		go result.compute()
	}
	if !result.ready() {
		return nil, result.done
	}
	value, _ = result.get()
	return value, nil
}

// join returns the result for the key. If created is true, the caller must compute it.
func (r *Results) join(key any, find func() any) (_ *result[any], created bool) {
	found, ok := r.byKey.Load(key)
	if !ok {
		found, ok = r.byKey.LoadOrStore(key, newResult(func() (any, error) { return find(), nil }))
	}
	return found.(*result[any]), !ok
}

// result is the result of a function that is called once, in the goroutine that needs it first.
type result[T any] struct {
	get  func() (T, error) // waits for the result; panics if the function panicked
	done chan struct{}     // closed when compute has returned
}

func newResult[T any](find func() (T, error)) *result[T] {
	return &result[T]{sync.OnceValues(find), make(chan struct{})}
}

// compute calls the function. A panic is left to the callers of get.
func (r *result[T]) compute() {
	defer close(r.done)
	defer func() { _ = recover() }()
	_, _ = r.get()
}

func (r *result[T]) ready() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

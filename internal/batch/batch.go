// Package batch does work once for several goroutines that need it at the same time.
//
//   - Batcher collects items while a batch is processed, and then processes them together.
//   - Loader looks up many keys in one call, and PipelineBatcher sends many Redis pipelines as one. Both use a Batcher.
//   - Shared keeps one value, such as a list read from SQL. Concurrent callers share one read of it, and later callers
//     use the value as long as they accept it as new enough.
//   - Results keeps a value for each key. The first caller that needs a value computes it, and the others share it. A
//     Results lasts as long as one event or one request.
//
// Loader and PipelineBatcher keep the contexts of waiting callers, because a batch is given up only when
// the contexts of all its callers have ended.
package batch

import (
	"slices"
	"sync"
	"time"
)

// Batcher combines items of concurrent callers into batches. It adds no delay: items that arrive
// while a batch is processed form the next batch. The zero Batcher is ready to use.
type Batcher[T any] struct {
	// MaxWait is how long an item waits for the running batch. After that, a second batch with the
	// waiting items runs at the same time. So a batch that hangs delays the items of others by at
	// most MaxWait. If MaxWait is 0, there is one batch at a time. It must not change after the
	// first call of Do.
	MaxWait time.Duration

	mu      sync.Mutex
	leader  *request[T] // leads the batch that the waiting items wait for; nil if there is none
	waiting []*request[T]
}

// request is an item of a caller. turn receives true when the batch with the item has ended in another
// goroutine, and false when the caller must lead the next batch.
type request[T any] struct {
	item T
	turn chan bool
}

// Do processes item in a batch of at most maxItems items, and returns when the batch has ended. This
// goroutine, or another that called Do, calls work with the batch.
//
// If work panics, the panic reaches only the goroutine that called it. Do returns to the other callers
// as usual, although their items may not have been processed. So work must record in each item that it
// has been processed.
func (b *Batcher[T]) Do(item T, maxItems int, work func([]T)) {
	req := &request[T]{item, make(chan bool, 1)}
	b.mu.Lock()
	if b.leader == nil {
		b.leader = req
	} else {
		b.waiting = append(b.waiting, req)
		b.mu.Unlock()
		if b.wait(req) {
			return
		}
		b.mu.Lock()
	}
	n := min(len(b.waiting), maxItems-1)
	others := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	b.mu.Unlock()
	// The waiting callers must continue even if work panics.
	defer func() {
		for _, r := range others {
			r.turn <- true
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.leader != req {
			return // a second batch began meanwhile, and the waiting items wait for that one
		}
		if b.leader = nil; len(b.waiting) > 0 {
			b.leader = b.waiting[0]
			b.waiting = slices.Delete(b.waiting, 0, 1)
			b.leader.turn <- false
		}
	}()
	items := []T{item}
	for _, r := range others {
		items = append(items, r.item)
	}
	work(items)
}

// wait returns true when the batch with the item of r has ended. It returns false if this goroutine
// must lead a batch, either because it is next, or because MaxWait has passed.
func (b *Batcher[T]) wait(r *request[T]) (done bool) {
	if b.MaxWait <= 0 {
		return <-r.turn
	}
	timer := time.NewTimer(b.MaxWait)
	defer timer.Stop()
	select {
	case done = <-r.turn:
		return done
	case <-timer.C:
	}
	b.mu.Lock()
	at := slices.Index(b.waiting, r)
	if at < 0 { // the item is in a batch, or this goroutine leads the next one
		b.mu.Unlock()
		return <-r.turn
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.leader = r
	b.mu.Unlock()
	return false
}

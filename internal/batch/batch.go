// Package batch does work once for several goroutines that need it at the same time.
//
//   - Batcher collects items while a batch is under way, and processes them together.
//   - Loader looks up many keys in one call, and PipelineBatcher sends many Redis pipelines as one. Both use a Batcher.
//   - Shared is a value that is read once for all who ask meanwhile, and used while it holds.
//   - Results has a value for each key that is computed once for an event or a request.
//
// Loader and PipelineBatcher keep the contexts of waiting callers, because a batch ends when the last of
// them does.
package batch

import (
	"slices"
	"sync"
	"time"
)

// Batcher combines items of concurrent callers into batches. It adds no delay: items that arrive
// while a batch is processed form the next batch. The zero Batcher is ready to use.
type Batcher[T any] struct {
	// MaxWait is how long an item waits for the running batch. After that, it is processed at the
	// same time as that batch, together with the other waiting items, so a batch that hangs delays
	// only its own items. If MaxWait is 0, there is one batch at a time. It must not change after
	// the first call of Do.
	MaxWait time.Duration

	mu      sync.Mutex
	leader  *request[T] // leads the batch that the waiting items wait for; nil if there is none
	waiting []*request[T]
}

// request is an item of a caller. turn receives true when another goroutine has processed the item,
// and false when the caller must lead the next batch.
type request[T any] struct {
	item T
	turn chan bool
}

// Do returns when item has been processed, in a batch of at most most items. This goroutine, or
// another that called Do, calls work with the batch.
func (b *Batcher[T]) Do(item T, most int, work func([]T)) {
	mine := &request[T]{item, make(chan bool, 1)}
	b.mu.Lock()
	if b.leader == nil {
		b.leader = mine
	} else {
		b.waiting = append(b.waiting, mine)
		b.mu.Unlock()
		if b.wait(mine) {
			return
		}
		b.mu.Lock()
	}
	n := min(len(b.waiting), most-1)
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
		if b.leader != mine {
			return // the waiting items wait for a later batch
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

// wait waits until the item has been processed, and returns true. It returns false if this
// goroutine must lead a batch, either because it is next, or because MaxWait has passed.
func (b *Batcher[T]) wait(mine *request[T]) (done bool) {
	if b.MaxWait <= 0 {
		return <-mine.turn
	}
	over := time.NewTimer(b.MaxWait)
	defer over.Stop()
	select {
	case done = <-mine.turn:
		return done
	case <-over.C:
	}
	b.mu.Lock()
	at := slices.Index(b.waiting, mine)
	if at < 0 { // the item is in a batch, or this goroutine leads the next one
		b.mu.Unlock()
		return <-mine.turn
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.leader = mine
	b.mu.Unlock()
	return false
}

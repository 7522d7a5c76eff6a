// Package together sends the requests that several goroutines have for a server at the same
// time as one request.
package together

import (
	"slices"
	"sync"
	"time"
)

// Batcher lets one goroutine do what several ask for at the same time. Nobody waits for
// company: what comes while one batch is being done is the next. The zero Batcher is ready.
type Batcher[T any] struct {
	// Patience is how long an item waits before it is done beside the batch that it waits
	// for, together with the others that wait: a batch that hangs holds up its own items
	// only. Zero: there is one batch at a time. It must not change when Do has been called.
	Patience time.Duration

	mu      sync.Mutex
	leader  *request[T] // of the batch whose end those that wait wait for; nil: there is none
	waiting []*request[T]
}

// request is an item that waits. Its turn is true when the item was in a batch, and false
// when its goroutine is to lead the next.
type request[T any] struct {
	item T
	turn chan bool
}

// Do returns when the item was in a batch of at most so many, which is done by this
// goroutine or by another that called Do.
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
	// Whoever leads the next batch is called even if this one panics.
	defer func() {
		for _, r := range others {
			r.turn <- true
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.leader != mine {
			return // another batch was begun beside this one, and its end is waited for
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

// wait waits for the request's turn. When its patience is over, it leads a batch beside
// the one that it waited for.
func (b *Batcher[T]) wait(mine *request[T]) (done bool) {
	if b.Patience <= 0 {
		return <-mine.turn
	}
	over := time.NewTimer(b.Patience)
	defer over.Stop()
	select {
	case done = <-mine.turn:
		return done
	case <-over.C:
	}
	b.mu.Lock()
	at := slices.Index(b.waiting, mine)
	if at < 0 { // it is in a batch, or leads one
		b.mu.Unlock()
		return <-mine.turn
	}
	b.waiting = slices.Delete(b.waiting, at, at+1)
	b.leader = mine
	b.mu.Unlock()
	return false
}

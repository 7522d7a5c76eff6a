package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// turnLasts is how long the messages of an author wait, at most, for one that many are
// being told of. It ends a turn in which a store does not answer.
const turnLasts = time.Second

// turns has the messages of an author follow one another: while many subscriptions are
// told of one, those behind it wait here, and not in each of the subscriptions. So a
// burst costs one walk over the subscriptions for each message, whose verdict is new, and
// not one walk in which each message needs verdicts again and again. Other authors'
// messages wait for none of it.
//
//	free ──take: told by many──> busy ──take──> busy, one more waits
//	  ^                           │
//	  └──────none waits───────────┴──the turn ends: the next is offered; busy if many are told
type turns struct {
	most    int             // how many wait, at most, for turns: the first of more are offered at once
	lasts   time.Duration   // see turnLasts
	running *sync.WaitGroup // the goroutines of authors who are busy

	mu   sync.Mutex
	busy map[int64][]turn // by author: what waits, in the order of arrival
}

// turn offers a message to its subscriptions, and never waits. It returns a channel that
// is closed when they have been told, or nil: then the turn has ended.
type turn func() (told <-chan struct{})

// take has the turn taken now, or after those of the author that came before. It never
// waits. One goroutine alone calls it and afterAll. An author of 0 has no turns to wait for.
func (t *turns) take(ctx context.Context, author int64, turn turn) {
	t.mu.Lock()
	waiting, busy := t.busy[author]
	if busy {
		t.busy[author] = append(waiting, turn)
	}
	t.mu.Unlock()
	if busy {
		return
	}
	if told := turn(); told != nil && author != 0 {
		t.mu.Lock()
		t.busy[author] = nil
		t.mu.Unlock()
		t.running.Go(func() { t.goOn(ctx, author, told) })
	}
}

// goOn has the turns that wait taken, until none does. When ctx is done they are taken at
// once: nothing that was received is dropped here.
func (t *turns) goOn(ctx context.Context, author int64, told <-chan struct{}) {
	for {
		limit := time.NewTimer(t.lasts)
		select {
		case <-told:
		case <-limit.C:
		case <-ctx.Done():
		}
		limit.Stop()
		for told = nil; told == nil; {
			next, more := t.next(author)
			if next == nil {
				return
			}
			if told = next(); more >= t.most {
				told = nil
			}
		}
	}
}

// next returns the turn to be taken and how many wait behind it. If there is none, the
// author is no longer busy.
func (t *turns) next(author int64) (next turn, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := t.busy[author]
	if len(waiting) == 0 {
		delete(t.busy, author)
		return nil, 0
	}
	t.busy[author] = waiting[1:]
	return waiting[0], len(waiting) - 1
}

// afterAll calls f when every message that was taken before has been offered: at once, if
// no author is busy.
func (t *turns) afterAll(f func()) {
	var left atomic.Int64
	pass := func() <-chan struct{} {
		if left.Add(-1) == 0 {
			f()
		}
		return nil
	}
	t.mu.Lock()
	left.Store(int64(len(t.busy)) + 1)
	for author, waiting := range t.busy {
		t.busy[author] = append(waiting, pass)
	}
	t.mu.Unlock()
	pass()
}

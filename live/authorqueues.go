package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueueWait is how long the messages of an author wait, at most, while subscriptions are notified
// of an earlier one. The limit matters when a store does not answer.
const maxQueueWait = time.Second

// authorQueues queues messages per author. While many subscriptions are notified of a message, the author's
// next messages wait here, and not in each subscription's buffer. So a burst costs one walk over the
// subscriptions per message, with a fresh verdict. If all messages waited in the buffers, their
// verdicts would expire during the walk and be read again and again. Messages of other authors do not
// wait.
//
//	free ──join, many to notify──> busy ──join──> busy, one more waits
//	  ^                             │
//	  └──────none waits─────────────┴──notified, or a second is over: the next is offered
type authorQueues struct {
	most    int             // when more messages wait, the first ones are offered without waiting
	maxWait time.Duration   // see maxQueueWait
	running *sync.WaitGroup // one goroutine per busy author

	mu   sync.Mutex
	busy map[int64][]offer // waiting messages by author, in the order of arrival
}

// offer puts a message into the buffers of its subscriptions. It never waits. It returns a channel
// that is closed when they have been notified, or nil if the author's next message need not wait.
type offer func() (told <-chan struct{})

// join offers a message now, or after the author's earlier messages. It never waits. Only one
// goroutine may call join and afterAll. Messages without an author (0) are not queued.
func (q *authorQueues) join(ctx context.Context, author int64, message offer) {
	q.mu.Lock()
	waiting, busy := q.busy[author]
	if busy {
		q.busy[author] = append(waiting, message)
	}
	q.mu.Unlock()
	if busy {
		return
	}
	if told := message(); told != nil && author != 0 {
		q.mu.Lock()
		q.busy[author] = nil
		q.mu.Unlock()
		q.running.Go(func() { q.move(ctx, author, told) })
	}
}

// move offers the author's waiting messages until there are none. When ctx is done it offers them
// at once: it drops no received message.
func (q *authorQueues) move(ctx context.Context, author int64, told <-chan struct{}) {
	for {
		limit := time.NewTimer(q.maxWait)
		select {
		case <-told:
		case <-limit.C:
		case <-ctx.Done():
		}
		limit.Stop()
		for told = nil; told == nil; {
			message, more := q.next(author)
			if message == nil {
				return
			}
			if told = message(); more >= q.most {
				told = nil
			}
		}
	}
}

// next removes and returns the author's first waiting message, and returns how many wait behind it.
// If there is none, the author is no longer busy.
func (q *authorQueues) next(author int64) (message offer, more int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.busy[author]
	if len(waiting) == 0 {
		delete(q.busy, author)
		return nil, 0
	}
	q.busy[author] = waiting[1:]
	return waiting[0], len(waiting) - 1
}

// afterAll calls f when every message that joined before has been offered. If no author is busy, it
// calls f at once.
func (q *authorQueues) afterAll(f func()) {
	var left atomic.Int64
	pass := func() <-chan struct{} {
		if left.Add(-1) == 0 {
			f()
		}
		return nil
	}
	q.mu.Lock()
	left.Store(int64(len(q.busy)) + 1)
	for author, waiting := range q.busy {
		q.busy[author] = append(waiting, pass)
	}
	q.mu.Unlock()
	pass()
}

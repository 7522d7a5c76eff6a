package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lineStands is how long the messages of an author wait, at most, while subscriptions are notified
// of an earlier one. The limit matters when a store does not answer.
const lineStands = time.Second

// lines queues messages per author. While many subscriptions are notified of a message, the author's
// next messages wait here, and not in each subscription's buffer. So a burst costs one walk over the
// subscriptions per message, with a fresh verdict. If all messages waited in the buffers, their
// verdicts would expire during the walk and be read again and again. Messages of other authors do not
// wait.
//
//	free ──join, many to notify──> busy ──join──> busy, one more waits
//	  ^                             │
//	  └──────none waits─────────────┴──notified, or a second is over: the next is offered
type lines struct {
	most    int             // when more messages wait, the first ones are offered without waiting
	stands  time.Duration   // see lineStands
	running *sync.WaitGroup // one goroutine per busy author

	mu   sync.Mutex
	busy map[int64][]offer // waiting messages by author, in the order of arrival
}

// offer puts a message into the buffers of its subscriptions. It never waits. It returns a channel
// that is closed when they have been notified, or nil if the author's next message need not wait.
type offer func() (told <-chan struct{})

// join offers a message now, or after the author's earlier messages. It never waits. Only one
// goroutine may call join and afterAll. Messages without an author (0) are not queued.
func (l *lines) join(ctx context.Context, author int64, message offer) {
	l.mu.Lock()
	waiting, busy := l.busy[author]
	if busy {
		l.busy[author] = append(waiting, message)
	}
	l.mu.Unlock()
	if busy {
		return
	}
	if told := message(); told != nil && author != 0 {
		l.mu.Lock()
		l.busy[author] = nil
		l.mu.Unlock()
		l.running.Go(func() { l.move(ctx, author, told) })
	}
}

// move offers the author's waiting messages until there are none. When ctx is done it offers them
// at once: it drops no received message.
func (l *lines) move(ctx context.Context, author int64, told <-chan struct{}) {
	for {
		limit := time.NewTimer(l.stands)
		select {
		case <-told:
		case <-limit.C:
		case <-ctx.Done():
		}
		limit.Stop()
		for told = nil; told == nil; {
			message, more := l.next(author)
			if message == nil {
				return
			}
			if told = message(); more >= l.most {
				told = nil
			}
		}
	}
}

// next removes and returns the author's first waiting message, and returns how many wait behind it.
// If there is none, the author is no longer busy.
func (l *lines) next(author int64) (message offer, more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.busy[author]
	if len(waiting) == 0 {
		delete(l.busy, author)
		return nil, 0
	}
	l.busy[author] = waiting[1:]
	return waiting[0], len(waiting) - 1
}

// afterAll calls f when every message that joined before has been offered. If no author is busy, it
// calls f at once.
func (l *lines) afterAll(f func()) {
	var left atomic.Int64
	pass := func() <-chan struct{} {
		if left.Add(-1) == 0 {
			f()
		}
		return nil
	}
	l.mu.Lock()
	left.Store(int64(len(l.busy)) + 1)
	for author, waiting := range l.busy {
		l.busy[author] = append(waiting, pass)
	}
	l.mu.Unlock()
	pass()
}

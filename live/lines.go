package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lineStands is how long the messages of an author wait, at most, for one that many are
// being told of. It is for when a store does not answer.
const lineStands = time.Second

// lines has the messages of an author follow one another: while many subscriptions are
// told of one, those behind it wait in line here, and not in each of the subscriptions. So
// a burst costs one walk over the subscriptions for each message, whose verdict is new, and
// not one walk in which each message needs verdicts again and again. Other authors'
// messages wait for none of it.
//
//	free ──join: told by many──> busy ──join──> busy, one more waits
//	  ^                           │
//	  └──────none waits───────────┴──told, or a second is over: the next is offered
type lines struct {
	most    int             // how many wait, at most, when the line moves: the first of more are offered at once
	stands  time.Duration   // see lineStands
	running *sync.WaitGroup // the goroutines of authors who are busy

	mu   sync.Mutex
	busy map[int64][]offer // by author: what waits, in the order of arrival
}

// offer offers a message to its subscriptions, and never waits. It returns a channel that
// is closed when they have been told, or nil: then nothing waits for it.
type offer func() (told <-chan struct{})

// join has a message offered now, or after those of the author that came before. It never
// waits. One goroutine alone calls it and afterAll. An author of 0 has no line.
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

// move has the messages that wait offered, until none does. When ctx is done they are
// offered at once: nothing that was received is dropped here.
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

// next returns the message to be offered and how many wait behind it. If there is none, the
// author is no longer busy.
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

// afterAll calls f when every message that joined before has been offered: at once, if no
// author is busy.
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

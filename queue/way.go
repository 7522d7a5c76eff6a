package queue

import (
	"context"
	"sync"
	"time"
)

// coming is how long a job of the pool Small takes from Enqueue to its worker, as
// a rule, and so how long large ones give way to it before it is there.
const coming = 5 * time.Millisecond

// way is shared by all jobs in this process: large ones give way to small ones,
// who would otherwise wait behind them in Redis, in SQL and for a processor.
type way struct {
	mu    sync.Mutex
	small int           // jobs under way, here or to here
	free  chan struct{} // closed when the last of them is done
}

func (w *way) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.small++; w.small == 1 {
		w.free = make(chan struct{})
	}
}

func (w *way) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.small--; w.small == 0 {
		close(w.free)
	}
}

// expect is enter before the job is here. It may go to another process, or be
// rolled back: it counts for a moment only.
func (w *way) expect() {
	w.enter()
	time.AfterFunc(coming, w.leave)
}

// GiveWay returns what a job of the pool Large calls after each of some short
// steps: it waits while small jobs are under way in this process, from their
// Enqueue on, but for four times the time of the step at most, so that those who
// never end leave it a fifth of its speed. The first step begins with GiveWay:
// who has waited for somebody else meanwhile calls it anew, or would wait four
// times as long once more.
func (j *Job) GiveWay(ctx context.Context) func() {
	since := time.Now()
	return func() {
		defer func() { since = time.Now() }()
		j.way.mu.Lock()
		small, free := j.way.small, j.way.free
		j.way.mu.Unlock()
		if small == 0 {
			return
		}
		patience := time.NewTimer(4 * time.Since(since))
		defer patience.Stop()
		select {
		case <-free:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
}

package workers

import (
	"context"
	"sync"
	"time"

	"tideline/queue"
)

// way is shared by all jobs in this process: large ones give way to small ones,
// who would otherwise wait behind them in Redis, in SQL and for a processor.
type way struct {
	mu    sync.Mutex
	small int           // jobs under way
	free  chan struct{} // closed when the last of them is done
}

// first has a handler go first when its job is a small one.
func (w *way) first(do queue.Handler) queue.Handler {
	return func(ctx context.Context, j *queue.Job) error {
		if j.Pool == queue.Small {
			w.enter()
			defer w.leave()
		}
		return do(ctx, j)
	}
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

// given returns what a large job calls between two short steps: it waits while
// small ones are under way, for four times the time of the step at most, so that
// those who never end leave it a fifth of its speed.
func (w *way) given(ctx context.Context) func() {
	since := time.Now()
	return func() {
		defer func() { since = time.Now() }()
		w.mu.Lock()
		small, free := w.small, w.free
		w.mu.Unlock()
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

package queue

import (
	"context"
	"sync"
	"time"
)

// enqueueToWorker is the time that a job of the pool Small usually takes from
// Enqueue to its worker. For that long large jobs give way to it before it is there.
const enqueueToWorker = 5 * time.Millisecond

// priority lets the large jobs of this process give way to the small ones. These
// would otherwise wait behind the large ones in Redis, in SQL and for a processor.
type priority struct {
	mu    sync.Mutex
	small int           // small jobs that run here, or were announced
	idle  chan struct{} // closed when small falls to 0
}

// enter counts a small job that begins to run.
func (p *priority) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.small++; p.small == 1 {
		p.idle = make(chan struct{})
	}
}

// leave ends what enter began.
func (p *priority) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.small--; p.small == 0 {
		close(p.idle)
	}
}

// announce counts a small job for a moment, before it runs. It may go to another
// process, or be rolled back.
func (p *priority) announce() {
	p.enter()
	time.AfterFunc(enqueueToWorker, p.leave)
}

// GiveWay returns a function that a long job calls after each of its short steps.
// The function waits while small jobs of this process run, or are on their way from
// Enqueue. It waits at most four times as long as the step took, so that small jobs
// without end leave the long one a fifth of its speed.
//
// The first step begins with GiveWay. After a wait for something else, call GiveWay again: that
// wait would count as a step. Each call ends a step, see Config.StepLimit. For a job of the pool
// Small this is all that the function does: it is itself among the jobs that the others wait for.
func (j *Job) GiveWay(ctx context.Context) func() {
	if j.Pool == Small {
		return j.steps.done
	}
	since := time.Now()
	return func() {
		j.steps.done()
		defer func() { since = time.Now(); j.steps.done() }()
		j.priority.mu.Lock()
		small, idle := j.priority.small, j.priority.idle
		j.priority.mu.Unlock()
		if small == 0 {
			return
		}
		patience := time.NewTimer(4 * time.Since(since))
		defer patience.Stop()
		select {
		case <-idle:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
}

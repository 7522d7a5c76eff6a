package queue

import (
	"context"
	"sync"
	"time"
)

// enqueueToWorker is the usual time that a Small job takes from Enqueue to its worker. Large jobs
// give way to the job during this time, before it arrives.
const enqueueToWorker = 5 * time.Millisecond

// priority makes the large jobs of this process give way to the small ones, which would otherwise
// wait behind them in Redis, in SQL and for a processor.
type priority struct {
	mu    sync.Mutex
	small int           // small jobs that run here or were announced
	idle  chan struct{} // closed when small falls to 0
}

// enter counts a small job that begins to run. Call leave when it ends.
func (p *priority) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.small++; p.small == 1 {
		p.idle = make(chan struct{})
	}
}

// leave uncounts a small job.
func (p *priority) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.small--; p.small == 0 {
		close(p.idle)
	}
}

// announce counts a small job for enqueueToWorker, before it runs. The job may go to another
// process, or be rolled back.
func (p *priority) announce() {
	p.enter()
	time.AfterFunc(enqueueToWorker, p.leave)
}

// GiveWay returns a function for a long job to call after each of its short steps. The function
// waits while small jobs run in this process or are on their way from Enqueue. It waits at most
// four times as long as the step took, so a long job keeps at least a fifth of its speed.
//
// The first step begins with GiveWay. If the job waits for something else, call GiveWay again
// afterwards, because that wait would count as a step. Each call of the function ends a step (see
// Config.StepLimit). In a job of the pool Small, the function does nothing else, because the job is
// itself one of the small jobs to wait for.
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

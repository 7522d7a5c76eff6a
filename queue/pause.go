package queue

import (
	"context"
	"sync"
)

// gate is what a paused process waits at before it takes a job.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

// Pause has this process take no new job until Resume. It goes on with those under way,
// gives their signs of life, and brings due rows to the streams; other processes do the
// jobs. A process that is paused already stays so. A job that Redis delivers just now is
// handed back.
func (q *Queue) Pause() {
	q.gate.mu.Lock()
	defer q.gate.mu.Unlock()
	if q.gate.shut == nil {
		q.gate.shut = make(chan struct{})
	}
}

// Resume ends a pause.
func (q *Queue) Resume() {
	q.gate.mu.Lock()
	defer q.gate.mu.Unlock()
	if q.gate.shut != nil {
		close(q.gate.shut)
		q.gate.shut = nil
	}
}

// Paused reports whether the process is paused.
func (q *Queue) Paused() bool { return q.gate.opens() != nil }

// UnderWay is how many jobs this process does now. After Pause it does not rise: at 0 the
// process is drained, and only Resume changes that.
func (q *Queue) UnderWay() int { return int(q.underWay.Load()) }

// opens returns what is closed when the gate opens, nil while it is open.
func (g *gate) opens() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// pass waits until the gate is open, and reports false when ctx ended first.
func (g *gate) pass(ctx context.Context) bool {
	for {
		opens := g.opens()
		if opens == nil {
			return true
		}
		select {
		case <-opens:
		case <-ctx.Done():
			return false
		}
	}
}

// admit counts an attempt as under way, unless the gate is shut.
func (q *Queue) admit() bool {
	q.gate.mu.Lock()
	defer q.gate.mu.Unlock()
	if q.gate.shut != nil {
		return false
	}
	q.underWay.Add(1)
	return true
}

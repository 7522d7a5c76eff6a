package queue

import (
	"context"
	"sync"
)

// gate holds back the readers of a paused process.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

// Pause stops this process from taking new jobs until Resume. The process continues its running
// jobs and their heartbeats, and keeps sweeping; other processes do the waiting jobs. A job that
// Redis delivers during the call is handed back. Pausing a paused process has no effect.
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

// UnderWay returns how many jobs this process is running. After Pause the number does not rise. At
// 0 the process is drained, until Resume.
func (q *Queue) UnderWay() int { return int(q.underWay.Load()) }

// opens returns a channel that is closed when the gate opens, or nil while it is open.
func (g *gate) opens() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// pass waits until the gate is open. It returns false if ctx ends first.
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

// admit counts one more running attempt, unless the gate is shut. It reports whether it did.
func (q *Queue) admit() bool {
	q.gate.mu.Lock()
	defer q.gate.mu.Unlock()
	if q.gate.shut != nil {
		return false
	}
	q.underWay.Add(1)
	return true
}

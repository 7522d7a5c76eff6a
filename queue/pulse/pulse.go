// Package pulse knows when a process last gave a sign of life for its jobs.
package pulse

import (
	"sync/atomic"
	"time"
)

// Pulse is that of the jobs of a pool. It is safe for concurrent use.
type Pulse struct {
	life time.Duration
	last atomic.Pointer[time.Time]
	gaps atomic.Int64
}

// New returns a Pulse with a sign of life just now. A claim without one ends after life.
func New(life time.Duration) *Pulse {
	p := &Pulse{life: life}
	now := time.Now()
	p.last.Store(&now)
	return p
}

// Beat stores that a sign of life was given at this time or later.
func (p *Pulse) Beat(at time.Time) {
	if !p.Alive() {
		p.gaps.Add(1)
	}
	p.last.Store(&at)
}

// Alive reports whether the last sign of life is so fresh that nobody can have claimed the jobs
// since. One of the two clocks stands still while a machine sleeps, and the other may be set:
// the larger gap counts.
func (p *Pulse) Alive() bool {
	last, now := *p.last.Load(), time.Now()
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0))) < p.life
}

// Gaps is how often a sign of life came too late.
func (p *Pulse) Gaps() int64 { return p.gaps.Load() }

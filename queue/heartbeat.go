package queue

import (
	"sync/atomic"
	"time"
)

// heartbeat records when the process last renewed its claims to the jobs of a pool. It is safe for
// concurrent use.
type heartbeat struct {
	life time.Duration
	last atomic.Pointer[time.Time]
	late atomic.Int64
}

// newHeartbeat returns a heartbeat whose last beat is now. Another process may claim the jobs after
// the duration life without a beat.
func newHeartbeat(life time.Duration) *heartbeat {
	h := &heartbeat{life: life}
	now := time.Now()
	h.last.Store(&now)
	return h
}

// beat records a beat at the given time or later.
func (h *heartbeat) beat(at time.Time) {
	if !h.alive() {
		h.late.Add(1)
	}
	h.last.Store(&at)
}

// alive reports whether the last beat is recent enough that no other process can have claimed the
// jobs since. The monotonic clock stops while a machine sleeps, and the wall clock may be set, so
// the larger of the two gaps counts.
func (h *heartbeat) alive() bool {
	last, now := *h.last.Load(), time.Now()
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0))) < h.life
}

// lateBeats returns how many beats came too late.
func (h *heartbeat) lateBeats() int64 { return h.late.Load() }

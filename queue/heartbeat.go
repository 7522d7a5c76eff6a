package queue

import (
	"sync/atomic"
	"time"
)

// heartbeat knows when the process last gave a sign of life for the jobs of a pool. It is
// safe for concurrent use.
type heartbeat struct {
	life time.Duration
	last atomic.Pointer[time.Time]
	late atomic.Int64
}

// newHeartbeat returns a heartbeat with a sign of life just now. Another process may claim
// the jobs after life without a sign.
func newHeartbeat(life time.Duration) *heartbeat {
	h := &heartbeat{life: life}
	now := time.Now()
	h.last.Store(&now)
	return h
}

// beat stores that a sign of life was given at this time or later.
func (h *heartbeat) beat(at time.Time) {
	if !h.alive() {
		h.late.Add(1)
	}
	h.last.Store(&at)
}

// alive reports whether the last sign of life is so fresh that no other process can have
// claimed the jobs since. The monotonic clock stands still while a machine sleeps, and the
// wall clock may be set: the larger gap counts.
func (h *heartbeat) alive() bool {
	last, now := *h.last.Load(), time.Now()
	return max(now.Sub(last), now.Round(0).Sub(last.Round(0))) < h.life
}

// lateBeats is how often a sign of life came too late.
func (h *heartbeat) lateBeats() int64 { return h.late.Load() }

package queue

import (
	"context"
	"slices"
)

const mostParked = 1000 // jobs that a reader holds while it reads on

// parked is a job that this process has claimed but not started, because its owner already has half
// of the slots. Heartbeats keep the claim. The job begins when an attempt for that owner ends, or
// when the stream has nothing else, so no slot stays idle. An owner with few jobs does not wait
// behind an owner with many.
type parked struct {
	entry
	held  *heldJob
	owner int64
	late  int64 // heldJobs.beats.lateBeats when the job was parked
}

// owner returns the owner of a job. It returns 0 if the owner is unknown, as for an entry with the
// id alone.
func (w *worker) owner(e entry) int64 {
	if w.cfg.Owner == nil || e.kind == "" {
		return 0
	}
	return w.cfg.Owner(e.kind, e.payload)
}

// unpark starts parked jobs while there are free slots: all of them, or those whose owners are
// below their share. It drops jobs that another process may have claimed.
func (w *worker) unpark(ctx, attempts context.Context, all bool) {
	w.parked = slices.DeleteFunc(w.parked, func(p parked) bool {
		switch {
		case p.late != w.held.beats.lateBeats() || !w.held.beats.alive():
			w.held.leave(p.held)
		case w.slots.free() == 0 || !all && w.slots.hasShare(p.owner):
			return false
		default:
			w.start(ctx, attempts, p.entry, p.held, p.owner)
		}
		return true
	})
}

// handBackParked returns the parked jobs to the stream, so that any process can do them.
func (w *worker) handBackParked(ctx context.Context) {
	for _, p := range w.parked {
		w.held.handBack(ctx, p.held)
	}
	w.parked = nil
}

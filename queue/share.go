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
	running *running
	owner   int64
	late    int64 // beats.lateBeats when the job was parked
}

// owner returns the owner of a job. It returns 0 if the owner is unknown, as for an entry with the
// id alone.
func (w *worker) owner(e entry) int64 {
	if w.cfg.Owner == nil || e.kind == "" {
		return 0
	}
	return w.cfg.Owner(e.kind, e.payload)
}

// hasShare reports whether the owner has as many slots as it may have while others wait.
func (w *worker) hasShare(owner int64) bool {
	share := max(1, cap(w.slots)/2)
	w.mu.Lock()
	defer w.mu.Unlock()
	return owner != 0 && w.owners[owner] >= share
}

// count adds n to the number of attempts that run for the owner.
func (w *worker) count(owner int64, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[owner] += n; w.owners[owner] == 0 {
		delete(w.owners, owner)
	}
}

// unpark starts parked jobs while there are free slots: all of them, or those whose owners are
// below their share. It drops jobs that another process may have claimed.
func (w *worker) unpark(ctx, attempts context.Context, all bool) {
	w.parked = slices.DeleteFunc(w.parked, func(p parked) bool {
		switch {
		case p.late != w.beats.lateBeats() || !w.beats.alive():
			w.leave(p.running)
		case w.slots.free() == 0 || !all && w.hasShare(p.owner):
			return false
		default:
			w.start(ctx, attempts, p.entry, p.running, p.owner)
		}
		return true
	})
}

// handBackParked returns the parked jobs to the stream, so that any process can do them.
func (w *worker) handBackParked(ctx context.Context) {
	for _, p := range w.parked {
		w.handBack(ctx, p.running)
	}
	w.parked = nil
}

package queue

import (
	"context"
	"slices"
)

const mostParked = 1000 // jobs that a reader looks past

// parked is a job whose owner has half of the slots, while others' jobs may wait. It is claimed,
// gets signs of life, and begins when an attempt of that owner ends, or nothing else comes. So no
// slot is idle, and whoever has few jobs is not behind somebody's many.
type parked struct {
	entry
	running *running
	owner   int64
	late    int64 // of the heartbeat, when it was parked
}

// owner returns whose job it is, 0 if nobody knows: an entry may have its id alone.
func (w *worker) owner(e entry) int64 {
	if w.cfg.Owner == nil || e.kind == "" {
		return 0
	}
	return w.cfg.Owner(e.kind, e.payload)
}

// hasShare reports whether the owner has as many slots as it may while others wait.
func (w *worker) hasShare(owner int64) bool {
	share := max(1, cap(w.slots)/2)
	w.mu.Lock()
	defer w.mu.Unlock()
	return owner != 0 && w.owners[owner] >= share
}

// count counts the attempts that run for the owner.
func (w *worker) count(owner int64, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[owner] += n; w.owners[owner] == 0 {
		delete(w.owners, owner)
	}
}

// unpark starts attempts with parked jobs while there are slots: those whose owners have
// not their share, or all. It leaves those to others that these may have claimed.
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

// handBackParked gives the parked jobs to other processes.
func (w *worker) handBackParked(ctx context.Context) {
	for _, p := range w.parked {
		w.handBack(ctx, p.running)
	}
	w.parked = nil
}

package workers

import (
	"context"
	"time"
)

// returnTimeout bounds a check of all masters. A cluster client that first asks a silent master for
// the topology takes some seconds.
const returnTimeout = 10 * time.Second

// wakeAfterReturn makes jobs due that wait because a master could not be reached, when a master
// serves that did not serve before. The first call does so too, because the process does not know
// what happened before it started.
func (w *Workers) wakeAfterReturn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, returnTimeout)
	defer cancel()
	answers, err := w.Masters(ctx)
	if err != nil {
		return // the health check reports it
	}
	if w.Timelines.Masters.Returned(answers) {
		w.wakeOwed = true
	}
	if !w.wakeOwed {
		return
	}
	woken, err := w.Queue.Wake(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "jobs still wait for a master of Redis that serves again", "error", err)
		return
	}
	w.wakeOwed = false
	if woken > 0 {
		w.Logger.InfoContext(ctx, "a master of Redis serves again: the jobs that waited are due", "jobs", woken)
	}
}

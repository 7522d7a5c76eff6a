package workers

import (
	"context"
	"errors"
	"time"

	"tideline/feed"
)

// trimFor bounds a trim. It is longer than other statements may take, because after an outage there
// is much to delete at once.
const trimFor = 10 * time.Minute

// trim cuts inboxes to their cap, removes users who are no longer active, and deletes expired
// sessions and idempotency keys. It works in small steps: a later period continues the work.
func (w *Workers) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, trimFor)
	defer cancel()
	swept, err := w.Timelines.Sweeper.Sweep(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "feeds not swept", "error", err)
	} else if swept.Expired+swept.Cut > 0 {
		w.Logger.InfoContext(ctx, "feeds swept", "users_gone", swept.Expired, "entries_cut", swept.Cut)
	}
	sessions, err := w.Sessions.Purge(ctx)
	keys, keysErr := feed.PurgeIdempotencyKeys(ctx, w.DB, w.Now().UTC())
	if err := errors.Join(err, keysErr); err != nil {
		w.Logger.WarnContext(ctx, "expired rows not purged", "error", err)
	} else if purged := sessions + keys; purged > 0 {
		w.Logger.InfoContext(ctx, "expired rows purged", "rows", purged)
	}
}

// balance moves authors who are both pushed and pulled on to pull.
func (w *Workers) balance(ctx context.Context) {
	if err := w.Home.FanOutModes.Rebalance(ctx); err != nil {
		w.Logger.WarnContext(ctx, "authors not moved on to pull", "error", err)
	}
}

// fold adds the appended deltas of counters to their columns.
func (w *Workers) fold(ctx context.Context) {
	if _, err := feed.FoldCounters(ctx, w.DB); err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "counters not folded", "error", err)
	}
}

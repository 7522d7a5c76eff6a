package workers

import "context"

// trim keeps what is bounded within its bounds: feeds at their caps, users who
// stayed away without feeds, sessions and idempotency keys that have expired.
// It is incremental: what one turn does not reach, a later one does.
func (w *Workers) trim(ctx context.Context) {
	swept, err := w.Timelines.Sweep(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "feeds not swept", "error", err)
	} else if swept.Expired+swept.Cut > 0 {
		w.Logger.InfoContext(ctx, "feeds swept", "users_gone", swept.Expired, "entries_cut", swept.Cut)
	}
	purged, err := w.Feed.Purge(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "expired rows not purged", "error", err)
	} else if purged > 0 {
		w.Logger.InfoContext(ctx, "expired rows purged", "rows", purged)
	}
}

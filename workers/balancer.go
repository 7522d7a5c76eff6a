package workers

import "context"

// balance moves authors whose audience has outgrown or shrunk below the
// threshold a step between fan-out on write and fan-out on read.
func (w *Workers) balance(ctx context.Context) {
	if err := w.Feed.Rebalance(ctx); err != nil {
		w.Logger.WarnContext(ctx, "authors not moved between push and pull", "error", err)
	}
}

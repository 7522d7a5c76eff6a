package workers

import "context"

// balance moves authors whose audience has crossed the threshold one step between
// push and pull.
func (w *Workers) balance(ctx context.Context) {
	if err := w.Home.Rebalance(ctx); err != nil {
		w.Logger.WarnContext(ctx, "authors not moved between push and pull", "error", err)
	}
}

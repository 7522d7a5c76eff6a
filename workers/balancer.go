package workers

import "context"

// balance ends the time in which authors on their way to pull are pushed and pulled.
func (w *Workers) balance(ctx context.Context) {
	if err := w.Home.Rebalance(ctx); err != nil {
		w.Logger.WarnContext(ctx, "authors not moved on to pull", "error", err)
	}
}

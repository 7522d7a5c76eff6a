package workers

import (
	"context"

	"tideline/feed"
)

// balance ends the time in which authors on their way to pull are pushed and pulled.
func (w *Workers) balance(ctx context.Context) {
	if err := w.Home.Rebalance(ctx); err != nil {
		w.Logger.WarnContext(ctx, "authors not moved on to pull", "error", err)
	}
}

// fold moves what was appended to counters into their columns.
func (w *Workers) fold(ctx context.Context) {
	if _, err := feed.FoldCounters(ctx, w.DB); err != nil && ctx.Err() == nil {
		w.Logger.WarnContext(ctx, "counters not folded", "error", err)
	}
}

// Package clock compares times on machines that sleep and whose clocks are set, and waits.
package clock

import (
	"context"
	"time"
)

// Sleep waits for d. It returns the error of ctx if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Every calls do once in each period until ctx ends, and returns the error of ctx. The first call
// comes after one period. A call that takes longer than a period skips the next ones.
func Every(ctx context.Context, period time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			do(ctx)
		}
	}
}

// Within reports whether two times are at most d apart, both by the monotonic clock, which stands
// still while a machine is suspended, and by the wall clock, which may be set.
func Within(d time.Duration, a, b time.Time) bool {
	return b.Sub(a).Abs() <= d && b.Round(0).Sub(a.Round(0)).Abs() <= d
}

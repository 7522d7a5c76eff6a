// Package clock compares times on machines that sleep and whose clocks are set.
package clock

import "time"

// Within reports whether two times are at most d apart, both by the monotonic clock, which stands
// still while a machine is suspended, and by the wall clock, which may be set.
func Within(d time.Duration, a, b time.Time) bool {
	return b.Sub(a).Abs() <= d && b.Round(0).Sub(a.Round(0)).Abs() <= d
}

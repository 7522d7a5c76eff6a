package ids

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An id contains its time: to the millisecond since 2026, and to 20 milliseconds before. Later
// times have larger ids, also across the border.
func TestIDsTellTheirTimes(t *testing.T) {
	t.Parallel()
	require.Equal(t, int64(0), At(Earliest))
	require.Equal(t, 1985, Earliest.Year())
	require.Negative(t, At(Earliest.Add(-1)))
	for _, border := range []time.Time{Earliest.Add(time.Second), time.Date(2009, 5, 4, 3, 2, 1, 0, time.UTC), fine, time.Now()} {
		for d := -100 * time.Millisecond; d <= 100*time.Millisecond; d += 500 * time.Microsecond {
			at := border.Add(d)
			step := time.Millisecond
			if at.Before(fine) {
				step = coarse
			}
			for _, id := range []int64{At(at), At(at) + PerStep - 1} {
				require.LessOrEqual(t, TimeOf(id), at)
				require.Less(t, at.Sub(TimeOf(id)), step)
				require.Equal(t, At(at), At(TimeOf(id)))
			}
			require.Equal(t, At(at)+PerStep, At(TimeOf(At(at)).Add(step)))
			require.Less(t, At(at)+PerStep-1, int64(1)<<53)
		}
	}
	require.Equal(t, int64(firstFine)<<timeShift, At(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).Add(firstFine*time.Millisecond)))
}

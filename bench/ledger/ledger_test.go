package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testLedger has users 0 and 1 with two subscriptions each, and user 2 with one. User 1 follows 0, users 0
// and 2 follow 1, and nobody follows 2.
func testLedger() *Ledger { return New([][]int{{1}, {0, 2}, {}}, 5) }

func TestLedger(t *testing.T) {
	t.Parallel()
	l := testLedger()
	start := time.Unix(0, 0)
	first := l.Begin(0, start)
	l.Delivered(1, first, start.Add(time.Millisecond)) // before the call is answered
	require.Zero(t, l.Missing())
	l.End(first, true, start.Add(2*time.Millisecond))
	require.Equal(t, 3, l.Missing())
	for _, sub := range []int{0, 3, 4} {
		l.Delivered(sub, first, start.Add(5*time.Millisecond))
	}
	require.Zero(t, l.Missing())
	require.Equal(t, Totals{
		Calls:     []time.Duration{2 * time.Millisecond},
		Latencies: []time.Duration{time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond},
		Span:      5 * time.Millisecond,
	}, l.Totals())

	l.Delivered(4, first, start.Add(6*time.Millisecond))
	require.Equal(t, 1, l.totals.Doubled)
	l.Delivered(2, first, start) // the user does not follow the author
	l.Delivered(0, 99, start)    // no such post
	require.Equal(t, 2, l.totals.Strays)
	require.Len(t, l.totals.Latencies, 4)

	// A call that failed may have created its post.
	second := l.Begin(2, start)
	l.End(second, false, start)
	require.Zero(t, l.Missing())
	l.Delivered(2, second, start.Add(time.Second))
	l.Delivered(2, second, start.Add(time.Second))
	require.Equal(t, 2, l.totals.Doubled)
	require.Zero(t, l.Missing())
	require.Equal(t, []int{4}, l.Recipients())
}

// A client that was told to read its timeline again has not missed the posts begun before.
func TestAnInvalidatedTimelineIsNotALoss(t *testing.T) {
	t.Parallel()
	l := testLedger()
	start := time.Unix(0, 0)
	first, under := l.Begin(0, start), l.Begin(0, start)
	l.End(first, true, start)
	l.Delivered(1, first, start.Add(time.Millisecond))
	l.Invalidated(0)
	l.Invalidated(1)
	require.Equal(t, 2, l.Missing(), "those of the others")
	l.End(under, true, start)
	require.Equal(t, 4, l.Missing(), "it was under way: those of the others")

	l.Delivered(0, first, start.Add(time.Hour)) // it may arrive all the same
	require.Equal(t, 4, l.Missing())
	l.Delivered(0, first, start.Add(time.Hour))
	require.Equal(t, 1, l.totals.Doubled)

	later := l.Begin(0, start)
	l.End(later, true, start)
	require.Equal(t, 8, l.Missing(), "what begins later is due")
}

// Take returns only the deliveries of its own step.
func TestLedgerIsTaken(t *testing.T) {
	t.Parallel()
	l := testLedger()
	start := time.Unix(0, 0)
	first := l.Begin(0, start)
	l.End(first, true, start)
	l.Delivered(0, first, start.Add(time.Millisecond))
	latencies, missing := l.Take()
	require.Equal(t, []time.Duration{time.Millisecond}, latencies)
	require.Equal(t, 3, missing)

	l.Delivered(1, first, start.Add(time.Hour)) // late
	second := l.Begin(0, start)
	l.End(second, true, start)
	require.Equal(t, 4, l.Missing())
	latencies, missing = l.Take()
	require.Empty(t, latencies)
	require.Equal(t, 4, missing)
	require.Zero(t, l.totals.Doubled+l.totals.Strays+l.Missing())
}

package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLargeJobsGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w way
		large := &Job{Pool: Large, way: &w}
		pace := large.GiveWay(t.Context())
		waits := func() time.Duration {
			time.Sleep(2 * time.Millisecond) // the step
			start := time.Now()
			pace()
			return time.Since(start)
		}
		require.Zero(t, waits(), "not to nobody")

		w.enter()
		require.Equal(t, 8*time.Millisecond, waits(), "not for ever")
		w.enter()
		time.AfterFunc(3*time.Millisecond, w.leave)
		time.AfterFunc(5*time.Millisecond, w.leave)
		require.Equal(t, 3*time.Millisecond, waits(), "until the last is done")
		require.Zero(t, waits())

		w.expect()
		require.Equal(t, coming-2*time.Millisecond, waits(), "to one that is about to come")
		require.Zero(t, waits(), "but comes to another process")
		w.expect()
		time.AfterFunc(coming-time.Millisecond, w.enter)
		time.AfterFunc(coming+time.Millisecond, w.leave)
		require.Equal(t, coming-time.Millisecond, waits(), "to one that has come")
		require.Zero(t, waits())
	})
}

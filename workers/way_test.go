package workers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/queue"
)

func TestLargeJobsGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w way
		end := make(chan struct{})
		do := w.first(func(context.Context, *queue.Job) error { <-end; return nil })
		waits := func(pace func()) time.Duration {
			time.Sleep(time.Millisecond) // the step
			start := time.Now()
			pace()
			return time.Since(start)
		}
		pace := w.given(t.Context())
		go func() { _ = do(t.Context(), &queue.Job{Pool: queue.Large}) }()
		synctest.Wait()
		require.Zero(t, waits(pace), "not to other large ones")

		go func() { _ = do(t.Context(), &queue.Job{Pool: queue.Small}) }()
		synctest.Wait()
		require.Equal(t, 4*time.Millisecond, waits(pace), "but not for ever")
		go func() { time.Sleep(3 * time.Millisecond); close(end) }()
		require.Equal(t, 2*time.Millisecond, waits(pace), "until the small one is done")
		require.Zero(t, waits(pace))
	})
}

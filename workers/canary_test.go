package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/workers"
)

// sendCanaries runs a Canary. The channel gets the observed times while it has space.
func (a *audience) sendCanaries() <-chan time.Duration {
	told := make(chan time.Duration, 1000)
	a.Run(a.Hub.Run)
	a.Run(workers.Canary{DB: a.Stores.DB, Queue: a.Queue, Hub: a.Hub, Every: 10 * time.Millisecond, Observe: func(d time.Duration) { offer(told, d) }}.Run)
	return told
}

// awaitFall waits for a value below the previous one. While no canary arrives, each value is
// higher.
func awaitFall(told <-chan time.Duration) {
	for last := time.Duration(0); ; {
		now := <-told
		if now < last {
			return
		}
		last = now
	}
}

// awaitAbove waits for a value above the bound.
func awaitAbove(told <-chan time.Duration, bound time.Duration) {
	for <-told <= bound {
	}
}

// enqueueLong starts workers with a job that runs until end is closed. begun is closed when the job
// runs.
func enqueueLong(t *testing.T, a *audience) (begun, end chan struct{}) {
	t.Helper()
	begun, end = make(chan struct{}), make(chan struct{})
	tx, err := a.Stores.DB.Tx(a.Ctx)
	require.NoError(t, err)
	require.NoError(t, a.Queue.Enqueue(a.Ctx, tx, queue.Small, "long", nil))
	require.NoError(t, tx.Commit())
	a.work(t, a.Stores.Redis, func(q *queue.Queue) {
		q.Handle("long", func(context.Context, *queue.Job) error { close(begun); <-end; return nil })
	})
	return begun, end
}

// Canaries reach a subscriber even while other jobs are outstanding.
func TestCanariesArriveWhileTheQueueIsBusy(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 0, 0)
		begun, end := enqueueLong(t, a)
		<-begun
		told := a.sendCanaries()
		for range 3 {
			awaitFall(told)
		}
		others, err := s.DB.Job.Query().Where(job.Not(job.KindHasPrefix("canary"))).Count(a.Ctx)
		require.NoError(t, err)
		require.Equal(t, 1, others, "it was busy all the time")
		close(end)
	})
}

// While no worker takes a canary, the subscriber observes a growing age, and no second canary is
// sent.
func TestCanaryGetsOlderWhileTheWorkersArePaused(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 0, 0)
		var paused *queue.Queue
		a.work(t, s.Redis, func(q *queue.Queue) { paused = q; q.Pause() })
		told := a.sendCanaries()
		for _, bound := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
			awaitAbove(told, bound)
		}
		n := 0
		require.Eventually(t, func() bool { // the first may fail to be sent
			var err error
			n, err = s.DB.Job.Query().Where(job.Kind("canary_subscriber"), job.Dead(false)).Count(a.Ctx)
			return err == nil && n > 0
		}, time.Minute, time.Millisecond)
		require.Equal(t, 1, n)
		paused.Resume()
		awaitFall(told)
	})
}

// An event may be lost. Then the next canary arrives.
func TestCanaryThatIsLostIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 0, 0)
		told := a.sendCanaries()
		next := func() *ent.Job {
			var row *ent.Job
			require.Eventually(t, func() bool {
				var err error
				row, err = s.DB.Job.Query().Where(job.Kind("canary_subscriber")).Only(a.Ctx)
				return err == nil
			}, time.Minute, time.Millisecond)
			return row
		}
		require.NoError(t, s.DB.Job.DeleteOne(next()).Exec(a.Ctx))
		next()
		awaitAbove(told, 50*time.Millisecond)
		a.work(t, s.Redis)
		awaitFall(told)
	})
}

package queue

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// A paused process keeps its running job, sends heartbeats for it and finishes it. It takes no
// other job: another process does those, and after the pause it takes jobs again.
func TestPausedProcessFinishesWhatItHasAndTakesNothingNew(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := pushOnly()
		cfg.ClaimIdle = 300 * time.Millisecond
		results := make(chan Result, 10)
		cfg.Observe = func(r Result) { results <- r }
		a, b := newQueue(t, s, cfg), newQueue(t, s, pushOnly())
		began, end := make(chan string, 1000), make(chan struct{})
		a.Handle("k", func(context.Context, *Job) error { began <- "a"; <-end; return nil })
		b.Handle("k", func(context.Context, *Job) error { began <- "b"; return nil })
		start(t, a)
		enqueue(t, a, Small, "k", "first")
		require.Equal(t, "a", receive(t, began))

		require.False(t, a.Paused())
		a.Pause()
		a.Pause()
		require.True(t, a.Paused())
		require.Equal(t, 1, a.UnderWay())
		silent := func() time.Duration {
			pending, err := s.Redis.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: Small.stream(), Group: group, Start: "-", End: "+", Count: 1}).Result()
			require.NoError(t, err)
			require.Len(t, pending, 1)
			return pending[0].Idle
		}
		last := silent()
		require.Eventually(t, func() bool {
			before := last
			last = silent()
			return last < before
		}, soon, time.Millisecond, "it gives a sign of life")

		stop := start(t, b)
		enqueue(t, a, Small, "k", make([]any, 100)...)
		for range 100 {
			require.Equal(t, "b", receive(t, began))
		}
		require.Empty(t, results)
		close(end)
		require.Equal(t, Done, receive(t, results).Outcome)
		require.Eventually(t, func() bool { return a.UnderWay() == 0 }, soon, time.Millisecond)
		drain(t, b)
		stop()

		enqueue(t, a, Small, "k", "last")
		a.Resume()
		a.Resume()
		require.False(t, a.Paused())
		require.Equal(t, "a", receive(t, began))
		drain(t, a)
		requireStreamsEmpty(t, a)
	})
}

// A job that Redis delivers while the process is paused goes back, and costs no attempt.
func TestJobThatComesDuringAPauseIsHandedBack(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		jobs := make(chan *Job, 10)
		q.Handle("k", func(_ context.Context, j *Job) error { jobs <- j; return nil })
		w := newWorker(q, Small, 2)
		require.NoError(t, w.setUp(t.Context()))
		enqueue(t, q, Small, "k", "one", "two")
		entries, err := w.next(t.Context(), 2)
		require.NoError(t, err)
		require.Len(t, entries, 2)

		q.Pause()
		w.begin(t.Context(), t.Context(), entries)
		assert.Zero(t, q.UnderWay())
		assert.Empty(t, w.held.jobs)
		pending, err := s.Redis.XPending(t.Context(), Small.stream(), group).Result()
		require.NoError(t, err)
		assert.Zero(t, pending.Count)
		assert.EqualValues(t, 2, s.Redis.XLen(t.Context(), Small.stream()).Val())

		start(t, q)
		q.Resume()
		for range 2 {
			assert.Equal(t, 1, receive(t, jobs).Attempt)
		}
		drain(t, q)
		requireStreamsEmpty(t, q)
	})
}

// A paused process stops like any other.
func TestPausedProcessStops(t *testing.T) {
	t.Parallel()
	q := newQueue(t, storagetest.Embedded(t), pushOnly())
	q.Pause()
	w := newWorker(q, Small, 1)
	ctx, stop := context.WithCancel(t.Context())
	at := watched{ctx, make(chan struct{}, 10)}
	stopped := make(chan struct{})
	go func() { w.run(at); close(stopped) }()
	receive(t, at.asked) // a slot is free, so the reader has reached the gate
	stop()
	receive(t, stopped)
}

// watched is a context that signals when a goroutine waits for its end.
type watched struct {
	context.Context
	asked chan struct{}
}

func (w watched) Done() <-chan struct{} {
	w.asked <- struct{}{}
	return w.Context.Done()
}

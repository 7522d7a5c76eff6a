package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestLargeJobsGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p priority
		large := &Job{Pool: Large, priority: &p, steps: new(steps)}
		pace := large.GiveWay(t.Context())
		waits := func() time.Duration {
			time.Sleep(2 * time.Millisecond) // the step
			start := time.Now()
			pace()
			return time.Since(start)
		}
		require.Zero(t, waits(), "nobody is there")

		p.enter()
		require.Equal(t, 8*time.Millisecond, waits(), "four times the step, not for ever")
		p.enter()
		time.AfterFunc(3*time.Millisecond, p.leave)
		time.AfterFunc(5*time.Millisecond, p.leave)
		require.Equal(t, 3*time.Millisecond, waits(), "until the last is done")
		require.Zero(t, waits())

		p.announce()
		require.Equal(t, enqueueToWorker-2*time.Millisecond, waits(), "for one that is about to come")
		require.Zero(t, waits(), "that one went to another process")
		p.announce()
		time.AfterFunc(enqueueToWorker-time.Millisecond, p.enter)
		time.AfterFunc(enqueueToWorker+time.Millisecond, p.leave)
		require.Equal(t, enqueueToWorker-time.Millisecond, waits(), "for one that has come")
		require.Zero(t, waits())
	})
}

func TestSmallJobsDoNotGiveWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p priority
		small := &Job{Pool: Small, priority: &p, steps: new(steps)}
		pace := small.GiveWay(t.Context())
		p.enter() // the job itself
		p.enter() // another small job
		p.announce()
		time.Sleep(2 * time.Millisecond) // the step
		start := time.Now()
		pace()
		require.Zero(t, time.Since(start), "it would wait for itself")
		require.Equal(t, start, *small.steps.last.Load(), "the step has ended")
		time.Sleep(enqueueToWorker)
	})
}

func TestSmallJobsAreGivenWay(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		look := func() (small int, ever bool) {
			q.priority.mu.Lock()
			defer q.priority.mu.Unlock()
			return q.priority.small, q.priority.idle != nil
		}
		met := make(chan int, 1)
		q.Handle("any", func(context.Context, *Job) error {
			small, _ := look()
			met <- small
			return nil
		})
		enqueue(t, q, Large, "any", 1)
		_, ever := look()
		require.False(t, ever)
		start(t, q)
		require.Zero(t, receive(t, met))
		enqueue(t, q, Small, "any", 1)
		_, ever = look()
		require.True(t, ever, "from Enqueue on")
		require.NotZero(t, receive(t, met))
		require.Eventually(t, func() bool { small, _ := look(); return small == 0 }, soon, time.Millisecond)
	})
}

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

func TestSmallJobsAreGivenWay(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		look := func() (underWay int, ever bool) {
			q.way.mu.Lock()
			defer q.way.mu.Unlock()
			return q.way.small, q.way.free != nil
		}
		met := make(chan int, 1)
		q.Handle("any", func(context.Context, *Job) error {
			underWay, _ := look()
			met <- underWay
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
		require.Eventually(t, func() bool { underWay, _ := look(); return underWay == 0 }, soon, time.Millisecond)
	})
}

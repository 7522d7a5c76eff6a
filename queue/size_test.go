package queue

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// A pool that grows takes jobs at once. One that shrinks finishes those under way, and takes
// none until there are few enough.
func TestPoolGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := pushOnly()
		cfg.Pools = map[Pool]int{Small: 2}
		results := make(chan Result, 100)
		cfg.Observe = func(r Result) { results <- r }
		q := newQueue(t, s, cfg)
		var running atomic.Int64
		began, end := make(chan int64, 100), make(chan struct{})
		q.Handle("k", func(context.Context, *Job) error {
			began <- running.Add(1)
			<-end
			running.Add(-1)
			return nil
		})
		require.Equal(t, 2, q.Size(Small))
		start(t, q)
		enqueue(t, q, Small, "k", make([]any, 50)...)
		for range 2 {
			receive(t, began)
		}
		require.NoError(t, q.Resize(Small, 5))
		require.Equal(t, 5, q.Size(Small))
		for range 3 {
			receive(t, began)
		}
		require.Equal(t, 5, q.UnderWay())

		require.NoError(t, q.Resize(Small, 1))
		for range 4 {
			end <- struct{}{}
			require.Equal(t, Done, receive(t, results).Outcome)
		}
		require.Eventually(t, func() bool { return q.UnderWay() == 1 }, soon, time.Millisecond)
		require.Empty(t, began)
		for range 45 {
			end <- struct{}{}
			require.Equal(t, int64(1), receive(t, began), "one at a time")
			require.Equal(t, Result{Outcome: Done, Attempt: 1}, outcomeOf(receive(t, results)))
		}
		close(end)
		drain(t, q)
		requireStreamsEmpty(t, q)
	})
}

func outcomeOf(r Result) Result { return Result{Outcome: r.Outcome, Attempt: r.Attempt, Err: r.Err} }

// However often the pools of two processes change under load, each job is done once.
func TestResizedPoolsDoEachJobOnce(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const jobs, most = 400, 9
		var mu sync.Mutex
		times := map[int]int{}
		left := make(chan struct{}, 2*jobs)
		var queues []*Queue
		for range 2 {
			q := newQueue(t, s, pushOnly())
			var running atomic.Int64
			q.Handle("k", func(_ context.Context, j *Job) error {
				assert.LessOrEqual(t, running.Add(1), int64(most))
				defer running.Add(-1)
				var n int
				if err := json.Unmarshal(j.Payload, &n); err != nil {
					return err
				}
				mu.Lock()
				times[n]++
				mu.Unlock()
				left <- struct{}{}
				return nil
			})
			queues = append(queues, q)
			start(t, q)
		}
		var resizing sync.WaitGroup
		over := make(chan struct{})
		resizing.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					assert.NoError(t, queues[rand.N(2)].Resize(Small, 1+rand.N(most)))
				}
			}
		})
		for n := 0; n < jobs; n += 20 {
			part := make([]any, 20)
			for i := range part {
				part[i] = n + i
			}
			enqueue(t, queues[n/20%2], Small, "k", part...)
		}
		for range jobs {
			receive(t, left)
		}
		drain(t, queues[0])
		close(over)
		resizing.Wait()
		require.Len(t, times, jobs)
		for n, done := range times {
			require.Equal(t, 1, done, n)
		}
		requireStreamsEmpty(t, queues[0])
	})
}

// A job that Redis delivers while the pool shrinks goes back, and costs no attempt.
func TestJobThatAShrunkPoolReadIsHandedBack(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		jobs, end := make(chan *Job, 10), make(chan struct{})
		q.Handle("k", func(_ context.Context, j *Job) error { jobs <- j; <-end; return nil })
		w := newWorker(q, Small, q.slots[Small])
		require.NoError(t, w.setUp(t.Context()))
		enqueue(t, q, Small, "k", "one", "two", "three")
		entries, err := w.next(t.Context(), 3)
		require.NoError(t, err)
		require.Len(t, entries, 3)

		require.NoError(t, q.Resize(Small, 1))
		w.begin(t.Context(), t.Context(), entries)
		receive(t, jobs)
		assert.Equal(t, 1, q.UnderWay())
		pending, err := s.Redis.XPending(t.Context(), Small.stream(), group).Result()
		require.NoError(t, err)
		assert.EqualValues(t, 1, pending.Count)
		close(end)
		w.attempts.Wait()

		start(t, q)
		for range 2 {
			assert.Equal(t, 1, receive(t, jobs).Attempt)
		}
		drain(t, q)
		requireStreamsEmpty(t, q)
	})
}

// A size has bounds, and a pool that is left to others has none.
func TestResizeRefuses(t *testing.T) {
	t.Parallel()
	q := newQueue(t, storagetest.Embedded(t), Config{Pools: map[Pool]int{Small: 3}})
	for _, n := range []int{-1, 0, MaxWorkers + 1} {
		require.ErrorContains(t, q.Resize(Small, n), `for pool "small": it must be 1 to 1024`)
	}
	require.ErrorContains(t, q.Resize(Large, 1), "has no workers")
	require.Equal(t, []int{3, 0}, []int{q.Size(Small), q.Size(Large)})
}

package queue

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent/job"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestCommitSurvivesRedisDown(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cut := &switchHook{}
		cut.off.Store(true)
		front := newQueue(t, sibling(t, s, cut), brisk())
		enqueue(t, front, Small, "k", nil)

		back := newQueue(t, s, brisk())
		ran := make(chan struct{}, 1)
		back.Handle("k", func(context.Context, *Job) error { ran <- struct{}{}; return nil })
		start(t, back)
		receive(t, ran)
		drain(t, back)
	})
}

func TestWipedRedisLosesNothing(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.Pools = map[Pool]int{Small: 2}
		q := newQueue(t, s, cfg)
		started, release := make(chan struct{}, 100), make(chan struct{})
		var mu sync.Mutex
		ran := map[string]int{}
		q.Handle("k", func(_ context.Context, j *Job) error {
			started <- struct{}{}
			<-release
			mu.Lock()
			defer mu.Unlock()
			ran[string(j.Payload)]++
			return nil
		})
		stop := start(t, q)
		for i := range 50 {
			enqueue(t, q, Small, "k", i)
		}
		receive(t, started)
		receive(t, started)
		storagetest.Wipe(t, s)
		close(release)
		drain(t, q)
		requireStreamsEmpty(t, q)
		stop()
		assert.Len(t, ran, 50)
	})
}

// If Redis is wiped while a job runs, the sweeper pushes the job again. The process that runs it
// must not start it a second time.
func TestWipeDoesNotDoubleRunningJob(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		started, release := make(chan struct{}, 10), make(chan struct{})
		q.Handle("k", func(context.Context, *Job) error {
			started <- struct{}{}
			<-release
			return nil
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		receive(t, started)
		storagetest.Wipe(t, s)
		require.Eventually(t, func() bool { // delivered anew
			p, err := s.Redis.XPending(t.Context(), Small.stream(), group).Result()
			return err == nil && p.Count == 1
		}, soon, 5*time.Millisecond)
		close(release)
		drain(t, q)
		requireStreamsEmpty(t, q)
		assert.Empty(t, started)
	})
}

func TestStreamEvictedAlone(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		enqueue(t, q, Small, "k", 1, 2, 3)
		require.NoError(t, s.Redis.Del(t.Context(), Small.stream()).Err())
		var calls atomic.Int32
		q.Handle("k", func(context.Context, *Job) error { calls.Add(1); return nil })
		start(t, q)
		drain(t, q)
		assert.GreaterOrEqual(t, calls.Load(), int32(3))
	})
}

// To other processes, a process that is cut off from Redis is dead.
func TestDeadWorkersJobIsClaimedWithItsState(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cut := &switchHook{}
		cfg := brisk()
		cfg.Lease, cfg.SweepEvery = time.Hour, time.Hour // the job must come by a claim, not by a sweep
		a := newQueue(t, sibling(t, s, cut), cfg)
		reached, hang := make(chan struct{}), make(chan struct{})
		a.Handle("k", func(ctx context.Context, j *Job) error {
			if err := j.Checkpoint(ctx, map[string]int{"page": 7}); err != nil {
				return err
			}
			close(reached)
			<-hang
			return errors.New("too late")
		})
		stop := start(t, a)
		enqueue(t, a, Small, "k", "p")
		receive(t, reached)
		cut.off.Store(true)

		b := newQueue(t, s, cfg)
		jobs := make(chan *Job, 1)
		b.Handle("k", func(_ context.Context, j *Job) error { jobs <- j; return nil })
		start(t, b)
		j := receive(t, jobs)
		assert.JSONEq(t, `{"page":7}`, string(j.State))
		assert.Equal(t, `"p"`, string(j.Payload))
		drain(t, b)
		requireStreamsEmpty(t, b)
		close(hang)
		stop()
		again := onlyJob(t, b)
		assert.True(t, again.Restart, "it may have written after its successor's last look")
		assert.True(t, again.CreatedAt.After(j.CreatedAt), "the first is done")
	})
}

func TestRunningJobIsNotClaimed(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.ClaimIdle = 2 * time.Second // a heartbeat every 0.7 s, on a busy machine too
		a, b := newQueue(t, s, cfg), newQueue(t, s, cfg)
		var calls atomic.Int32
		began, release := make(chan struct{}, 2), make(chan struct{})
		h := func(context.Context, *Job) error {
			calls.Add(1)
			began <- struct{}{}
			<-release
			return nil
		}
		a.Handle("k", h)
		b.Handle("k", h)
		start(t, a)
		start(t, b)
		enqueue(t, a, Small, "k", nil)
		receive(t, began)
		require.Never(t, func() bool { return calls.Load() > 1 }, 2*cfg.ClaimIdle, cfg.ClaimIdle/8)
		close(release)
		drain(t, a)
	})
}

func TestSweepDoesNotMultiplyBacklog(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.Resweep = time.Hour // a swept row does not become due again in this test
		q := newQueue(t, s, cfg)
		for range 20 {
			enqueue(t, q, Small, "k", 1, 2, 3, 4, 5)
		}
		for range 5 { // every row, whatever its due time
			require.NoError(t, s.DB.Job.Update().SetDueAt(time.Now().UTC()).Exec(t.Context()))
			found, added, err := q.sweepDue(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 100, found)
			assert.Zero(t, added)
		}
		assert.EqualValues(t, 100, s.Redis.XLen(t.Context(), Small.stream()).Val())
		assert.Zero(t, s.DB.Job.Query().Where(job.DueAtLTE(time.Now().UTC())).CountX(t.Context()))
	})
}

func TestConsumersOfDeadProcessesAreForgotten(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		require.NoError(t, q.streamOf(Small).create(t.Context()))
		require.NoError(t, q.streamOf(Small).create(t.Context()), "twice is harmless")
		enqueue(t, q, Small, "k", nil)
		entries, err := q.streamOf(Small).readNew(t.Context(), 1, readBlock)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		consumers := func() int { return len(s.Redis.XInfoConsumers(t.Context(), Small.stream(), group).Val()) }

		require.NoError(t, q.streamOf(Small).forget(t.Context(), -time.Hour))
		assert.Equal(t, 1, consumers(), "it holds a job")
		require.NoError(t, q.streamOf(Small).release(t.Context(), []*freed{{job: entries[0].job, entries: []string{entries[0].id}}}))
		require.NoError(t, q.streamOf(Small).forget(t.Context(), time.Hour))
		assert.Equal(t, 1, consumers(), "it was there just now")
		require.NoError(t, q.streamOf(Small).forget(t.Context(), -time.Hour))
		assert.Zero(t, consumers())
	})
}

// sibling returns stores for a second process, with its own connection to Redis.
func sibling(t testing.TB, s *storage.Stores, h redis.Hook) *storage.Stores {
	opt := *s.Redis.(*redis.Client).Options()
	opt.PushNotificationProcessor = nil // belongs to the first client
	rdb := redis.NewClient(&opt)
	rdb.AddHook(h)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	other := *s
	other.Redis = rdb
	return &other
}

// switchHook makes the commands of a client fail while off is set.
type switchHook struct{ off atomic.Bool }

func (h *switchHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *switchHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.off.Load() {
			return errors.New("cut off")
		}
		return next(ctx, cmd)
	}
}

func (h *switchHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

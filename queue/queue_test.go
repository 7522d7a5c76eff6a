package queue

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/ent"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) {
	storagetest.Main(m, func() error { return goleak.Find() })
}

// soon is long enough for an operation that takes milliseconds, even on a busy machine.
const soon = time.Minute

// brisk returns a configuration with short periods.
func brisk() Config {
	return Config{
		Lease: 200 * time.Millisecond, SweepEvery: 20 * time.Millisecond,
		Resweep: 200 * time.Millisecond, ClaimIdle: 300 * time.Millisecond,
	}
}

// pushOnly returns a configuration without sweeps: every job that runs was pushed by its commit.
func pushOnly() Config { return Config{SweepEvery: time.Hour, Lease: time.Hour} }

func newQueue(t testing.TB, s *storage.Stores, cfg Config) *Queue {
	t.Helper()
	q, err := New(s.DB, s.Redis, cfg)
	require.NoError(t, err)
	q.retryBase = 10 * time.Millisecond
	q.cfg.PushTimeout = soon // a busy machine must not leave a job to the sweeper
	return q
}

// start runs q. The returned function stops q; otherwise the end of the test does.
func start(t testing.TB, q *Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// enqueue enqueues one job per payload, all in one transaction.
func enqueue(t testing.TB, q *Queue, p Pool, kind string, payloads ...any) {
	t.Helper()
	tx, err := q.db.Tx(t.Context())
	require.NoError(t, err)
	for _, payload := range payloads {
		require.NoError(t, q.Enqueue(t.Context(), tx, p, kind, payload))
	}
	require.NoError(t, tx.Commit())
}

func drain(t testing.TB, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, q.Drain(ctx))
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// requireStreamsEmpty waits until the streams and the known sets are empty.
func requireStreamsEmpty(t testing.TB, q *Queue) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, p := range pools {
			if q.rdb.XLen(t.Context(), p.stream()).Val()+q.rdb.SCard(t.Context(), p.known()).Val() != 0 {
				return false
			}
		}
		return true
	}, soon, 5*time.Millisecond)
}

func onlyJob(t testing.TB, q *Queue) *ent.Job {
	t.Helper()
	row, err := q.db.Job.Query().Only(t.Context())
	require.NoError(t, err)
	return row
}

func TestCommittedJobRunsOnceByPush(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		results := make(chan Result, 10)
		cfg := pushOnly()
		cfg.Observe = func(r Result) { results <- r }
		q := newQueue(t, s, cfg)
		jobs := make(chan *Job, 10)
		q.Handle("greet", func(_ context.Context, j *Job) error { jobs <- j; return nil })
		start(t, q)

		enqueue(t, q, Large, "greet", map[string]int64{"post": 1<<53 - 1})
		j := receive(t, jobs)
		assert.JSONEq(t, `{"post":9007199254740991}`, string(j.Payload))
		assert.Equal(t, 1, j.Attempt)
		assert.Nil(t, j.State)
		r := receive(t, results)
		assert.Equal(t, Result{
			Job: j.ID, Kind: "greet", Pool: Large, Attempt: 1, Outcome: Done, Wait: r.Wait, Duration: r.Duration,
		}, r)
		assert.Positive(t, r.Wait)
		drain(t, q)
		requireStreamsEmpty(t, q)
		assert.Empty(t, jobs)
	})
}

func TestRolledBackJobNeverRuns(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		kept := make(chan string, 10)
		q.Handle("k", func(_ context.Context, j *Job) error { kept <- string(j.Payload); return nil })
		start(t, q)

		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		require.NoError(t, q.Enqueue(t.Context(), tx, Small, "k", "lost"))
		assert.Zero(t, s.Redis.Exists(t.Context(), Small.known()).Val(), "pushed before the commit")
		require.NoError(t, tx.Rollback())
		enqueue(t, q, Small, "k", "kept")
		drain(t, q)
		assert.Equal(t, `"kept"`, receive(t, kept))
		assert.Empty(t, kept)
	})
}

func TestFailedCommitDoesNotPush(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		refusal := errors.New("refused")
		tx.OnCommit(func(ent.Committer) ent.Committer {
			return ent.CommitFunc(func(_ context.Context, tx *ent.Tx) error {
				return errors.Join(refusal, tx.Rollback())
			})
		})
		require.NoError(t, q.Enqueue(t.Context(), tx, Small, "k", nil))
		require.ErrorIs(t, tx.Commit(), refusal)
		assert.Zero(t, s.Redis.Exists(t.Context(), Small.stream()).Val())
	})
}

func TestTwoProcessesShareJobs(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const jobs = 200
		var mu sync.Mutex
		done, by := map[string]bool{}, map[string]int{}
		var queues []*Queue
		for _, name := range []string{"a", "b"} {
			cfg := brisk()
			cfg.Pools = map[Pool]int{Small: 2}
			cfg.Lease, cfg.Resweep, cfg.ClaimIdle = soon, soon, soon // nothing is lost in this test
			q := newQueue(t, s, cfg)
			q.Handle("k", func(_ context.Context, j *Job) error {
				mu.Lock()
				defer mu.Unlock()
				if j.ID%10 == 0 && j.Attempt == 1 {
					return errors.New("once")
				}
				done[string(j.Payload)] = true
				by[name]++
				return nil
			})
			queues = append(queues, q)
		}
		payloads := make([]any, jobs)
		for i := range payloads {
			payloads[i] = i
		}
		for part := range slices.Chunk(payloads, 100) {
			enqueue(t, queues[0], Small, "k", part...)
		}
		stop := []func(){start(t, queues[0]), start(t, queues[1])}
		drain(t, queues[0])
		requireStreamsEmpty(t, queues[0])
		for _, f := range stop {
			f()
		}
		assert.Len(t, done, jobs)
		assert.Positive(t, by["a"])
		assert.Positive(t, by["b"])
	})
}

// Any number of large jobs or changes of relations does not delay a small job.
func TestPoolsDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	for _, full := range []Pool{Large, Relations} {
		t.Run(string(full), func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				q := newQueue(t, s, brisk())
				release := make(chan struct{})
				q.Handle("slow", func(context.Context, *Job) error { <-release; return nil })
				var quick atomic.Int32
				q.Handle("quick", func(context.Context, *Job) error { quick.Add(1); return nil })
				start(t, q)
				enqueue(t, q, full, "slow", 1, 2, 3, 4, 5)
				enqueue(t, q, Small, "quick", 1, 2, 3, 4, 5)
				require.Eventually(t, func() bool { return quick.Load() == 5 }, soon, time.Millisecond)
				require.Eventually(t, func() bool {
					stats, err := q.Stats(t.Context())
					require.NoError(t, err)
					return stats.Pools[Small].Depth == 0 && stats.Pools[full].Depth == 5 && stats.Pools[full].Oldest > 0
				}, soon, time.Millisecond)
				close(release)
				drain(t, q)
			})
		})
	}
}

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(ctx context.Context, let <-chan struct{}) error
		left    int
	}{
		"finishes in time":    {func(_ context.Context, let <-chan struct{}) error { <-let; return nil }, 0},
		"obeys its context":   {func(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return ctx.Err() }, 1},
		"ignores its context": {func(_ context.Context, let <-chan struct{}) error { <-let; return errors.New("x") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				cfg := pushOnly()
				cfg.StopGrace = 50 * time.Millisecond
				a := newQueue(t, s, cfg)
				began, let := make(chan struct{}), make(chan struct{})
				ended := make(chan struct{})
				a.Handle("k", func(ctx context.Context, _ *Job) error {
					defer close(ended)
					close(began)
					return c.handler(ctx, let)
				})
				stop := start(t, a)
				enqueue(t, a, Small, "k", nil)
				receive(t, began)
				if c.left == 0 {
					close(let)
				}
				stop()
				assert.Equal(t, c.left, s.DB.Job.Query().CountX(t.Context()))
				assert.EqualValues(t, c.left, s.Redis.XLen(t.Context(), Small.stream()).Val())

				if c.left > 0 { // another process does it, without a sweep
					b := newQueue(t, s, pushOnly())
					b.Handle("k", func(_ context.Context, j *Job) error {
						assert.Equal(t, 1, j.Attempt)
						return nil
					})
					start(t, b)
					drain(t, b)
					requireStreamsEmpty(t, b)
					if name == "ignores its context" {
						close(let)
					}
				}
				receive(t, ended)
			})
		})
	}
}

func TestOnRedisCluster(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.ClusterURL(t)})
	require.NoError(t, s.Migrate(t.Context()))
	cfg := brisk()
	cfg.Lease = soon // pushed by the commit; after the wipe, by the sweeper
	q := newQueue(t, s, cfg)
	began, let := make(chan struct{}, 100), make(chan struct{})
	q.Handle("k", func(_ context.Context, j *Job) error {
		began <- struct{}{}
		<-let
		if j.Attempt == 1 {
			return errors.New("once")
		}
		return nil
	})
	start(t, q)
	for _, p := range pools {
		enqueue(t, q, p, "k", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	}
	for range 8 + 2 {
		receive(t, began)
	}
	storagetest.Wipe(t, s)
	require.NoError(t, s.DB.Job.Update().SetDueAt(time.Now().UTC()).Exec(t.Context()))
	close(let)
	drain(t, q)
	requireStreamsEmpty(t, q)
}

func TestRefusals(t *testing.T) {
	s := storagetest.Embedded(t)
	for _, cfg := range []Config{
		{Pools: map[Pool]int{"huge": 1}}, {Pools: map[Pool]int{Small: 0}}, {Pools: map[Pool]int{Small: 1025}},
		{MaxAttempts: -1}, {Lease: -1}, {SweepEvery: time.Microsecond},
	} {
		_, err := New(s.DB, s.Redis, cfg)
		require.Error(t, err)
	}
	q := newQueue(t, s, Config{})
	tx, err := s.DB.Tx(t.Context())
	require.NoError(t, err)
	require.Error(t, q.Enqueue(t.Context(), tx, "huge", "k", nil))
	require.Error(t, q.Enqueue(t.Context(), tx, Small, "", nil))
	require.Error(t, q.Enqueue(t.Context(), tx, Small, "k", func() {}))
	require.NoError(t, tx.Rollback())
	_, err = q.List(t.Context(), ListOptions{Limit: 1001})
	require.Error(t, err)
	q.Handle("k", nil)
	assert.Panics(t, func() { q.Handle("k", nil) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, q.Run(ctx))
	require.ErrorIs(t, func() error { enqueue(t, q, Small, "k", json.RawMessage(`{}`)); return q.Drain(ctx) }(), context.Canceled)
}

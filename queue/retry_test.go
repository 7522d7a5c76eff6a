package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestFailureIsRetried(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var mu sync.Mutex
		var outcomes []string
		cfg := brisk()
		cfg.Observe = func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			outcomes = append(outcomes, fmt.Sprintf("%d %s %v", r.Attempt, r.Outcome, r.Err))
		}
		q := newQueue(t, s, cfg)
		q.Handle("k", func(_ context.Context, j *Job) error {
			switch j.Attempt {
			case 1:
				return errors.New("no luck")
			case 2:
				panic("ouch")
			}
			assert.Equal(t, `"p"`, string(j.Payload))
			return nil
		})
		stop := start(t, q)
		enqueue(t, q, Small, "k", "p")
		drain(t, q)
		requireStreamsEmpty(t, q)
		stop()
		slices.Sort(outcomes) // the next attempt may begin before the previous one is observed
		assert.Equal(t, []string{"1 failed no luck", "2 failed panic: ouch", "3 done <nil>"}, outcomes)
	})
}

func TestDeadAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 3
		q := newQueue(t, s, cfg)
		var calls atomic.Int32
		var healed atomic.Bool
		q.Handle("k", func(context.Context, *Job) error {
			calls.Add(1)
			if healed.Load() {
				return nil
			}
			return errors.New(strings.Repeat("ä", 600) + "\xff\x00")
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		drain(t, q)
		requireStreamsEmpty(t, q)

		row := onlyJob(t, q)
		assert.True(t, row.Dead)
		assert.Equal(t, 3, row.Attempts)
		assert.EqualValues(t, 3, calls.Load())
		assert.Equal(t, strings.Repeat("ä", 500), row.LastError)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Stats{Pools: map[Pool]PoolStats{Small: {}, Large: {}, Relations: {}}, Dead: 1}, stats)
		dead, err := q.List(t.Context(), ListOptions{Dead: true, Kind: "k"})
		require.NoError(t, err)
		require.Len(t, dead, 1)

		healed.Store(true)
		found, err := q.Retry(t.Context(), 12345, dead[0].ID, dead[0].ID)
		require.NoError(t, err)
		assert.Equal(t, []int64{dead[0].ID}, found)
		drain(t, q)
		left, err := q.List(t.Context(), ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func TestGiveUp(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		q.Handle("k", func(context.Context, *Job) error {
			return fmt.Errorf("wrapped: %w", GiveUp(errors.New("hopeless")))
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		drain(t, q)
		row := onlyJob(t, q)
		assert.True(t, row.Dead)
		assert.Equal(t, 1, row.Attempts)
		assert.Equal(t, "hopeless", row.LastError)
	})
}

// An old process does not give up a job that a newer one enqueued.
func TestUnknownKindWaitsForAProcessThatKnowsIt(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 4
		failed := make(chan struct{}, 100)
		cfg.Observe = func(r Result) {
			if r.Outcome == Failed {
				failed <- struct{}{}
			}
		}
		old := newQueue(t, s, cfg)
		stop := start(t, old)
		enqueue(t, old, Small, "k", nil)
		for range 2 * cfg.MaxAttempts {
			receive(t, failed)
		}
		stop()
		row := onlyJob(t, old)
		assert.False(t, row.Dead)
		assert.Contains(t, row.LastError, "no handler")

		young, done := newQueue(t, s, brisk()), make(chan struct{})
		young.Handle("k", func(context.Context, *Job) error { close(done); return nil })
		start(t, young)
		receive(t, done)
		drain(t, young)
		assert.Zero(t, young.db.Job.Query().CountX(t.Context()))
	})
}

func TestPoisonIsGivenUp(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 2
		q := newQueue(t, s, cfg)
		q.Handle("k", func(context.Context, *Job) error {
			assert.Fail(t, "poison ran again")
			return nil
		})
		enqueue(t, q, Small, "k", nil)
		// The job killed two workers: its entry is delivered and two attempts are counted.
		require.NoError(t, q.streamOf(Small).create(t.Context()))
		dead := newQueue(t, s, cfg)
		entries, err := dead.streamOf(Small).readNew(t.Context(), 1, readBlock)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.NoError(t, s.DB.Job.Update().SetAttempts(2).Exec(t.Context()))
		start(t, q)
		drain(t, q)
		row := onlyJob(t, q)
		assert.True(t, row.Dead)
		assert.Contains(t, row.LastError, "never ended")
	})
}

func TestCheckpointOfAJobThatIsGone(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		errs := make(chan error, 1)
		q.Handle("k", func(ctx context.Context, j *Job) error {
			s.DB.Job.DeleteOneID(j.ID).ExecX(ctx)
			errs <- j.Checkpoint(ctx, 1)
			return nil
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		require.ErrorIs(t, receive(t, errs), ErrClaimLost)
		requireStreamsEmpty(t, q)
	})
}

func TestBackoff(t *testing.T) {
	r := &jobRows{Queue: &Queue{retryBase: time.Second}}
	for attempts, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 10: maxBackoff, 1000: maxBackoff,
	} {
		for range 100 {
			got := r.backoff(attempts)
			assert.GreaterOrEqual(t, got, want*3/4)
			assert.Less(t, got, want*5/4)
		}
	}
}

// A job that is Unavailable is retried without end. It keeps a few attempts for other failures.
func TestUnavailableIsNotGivenUp(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 4
		q := newQueue(t, s, cfg)
		var calls atomic.Int32
		q.Handle("k", func(_ context.Context, j *Job) error {
			if n := calls.Add(1); n < 8 {
				return fmt.Errorf("wrapped: %w", Unavailable(errors.New("away")))
			}
			assert.Equal(t, 2, j.Attempt)
			return nil
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		drain(t, q)
		assert.EqualValues(t, 8, calls.Load())
		assert.Zero(t, s.DB.Job.Query().CountX(t.Context()))
	})
}

// A job that is given up, for any reason, is followed by a job of another kind.
func TestWhenGivenUp(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 2
		q := newQueue(t, s, cfg)
		q.Handle("fails", func(context.Context, *Job) error { return errors.New("no luck") })
		q.Handle("is given up at once", func(context.Context, *Job) error { return GiveUp(errors.New("hopeless")) })
		q.Handle("kills", func(context.Context, *Job) error { panic("not again") })
		followed := make(chan string, 10)
		for _, kind := range []string{"fails", "is given up at once", "kills"} {
			q.WhenGivenUp(kind, "follows")
		}
		q.Handle("follows", func(_ context.Context, j *Job) error { followed <- string(j.Payload); return nil })
		enqueue(t, q, Small, "kills", "died of it")
		s.DB.Job.Update().SetAttempts(2).SetClaim(7).ExecX(t.Context()) // the workers of two attempts died
		require.NoError(t, q.streamOf(Small).create(t.Context()))
		_, err := newQueue(t, s, cfg).streamOf(Small).readNew(t.Context(), 1, readBlock)
		require.NoError(t, err)
		start(t, q)
		enqueue(t, q, Large, "fails", "failed")
		enqueue(t, q, Small, "is given up at once", "discarded")
		drain(t, q)
		assert.ElementsMatch(t, []string{`"died of it"`, `"failed"`, `"discarded"`},
			[]string{receive(t, followed), receive(t, followed), receive(t, followed)})
		assert.Empty(t, followed)
		assert.Equal(t, 3, s.DB.Job.Query().CountX(t.Context()), "the dead ones stay")
		assert.Panics(t, func() { q.WhenGivenUp("late", "follows") })
	})
}

// An operator discards all of the named dead jobs, or none. Each kind of replacement is enqueued
// once.
func TestDiscard(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		replace := func(kind string) (then string, ok bool) {
			return map[string]string{"leaves something": "makes up"}[kind], kind != "needed"
		}
		add := func(kind string, dead bool) int64 {
			row, err := s.DB.Job.Create().SetKind(kind).SetPool(string(Small)).SetPayload([]byte(`1`)).SetDead(dead).SetDueAt(q.now()).Save(t.Context())
			require.NoError(t, err)
			return row.ID
		}
		one, two, three := add("leaves something", true), add("leaves something", true), add("leaves nothing", true)
		alive, needed := add("leaves nothing", false), add("needed", true)
		for id, want := range map[int64]error{alive: ErrNotDead, needed: ErrNeeded, 999_999: ErrNoJob} {
			enqueued, err := q.Discard(t.Context(), replace, one, id)
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, strconv.FormatInt(id, 10))
			require.Empty(t, enqueued)
		}
		_, err := q.Discard(t.Context(), replace, make([]int64, 1)...)
		require.ErrorIs(t, err, ErrNoJob)
		left, err := q.List(t.Context(), ListOptions{})
		require.NoError(t, err)
		require.Len(t, left, 5, "none is discarded where one is refused")

		enqueued, err := q.Discard(t.Context(), replace, three)
		require.NoError(t, err)
		require.Empty(t, enqueued)
		enqueued, err = q.Discard(t.Context(), replace, two, one, two)
		require.NoError(t, err)
		require.Equal(t, []string{"makes up"}, enqueued)
		left, err = q.List(t.Context(), ListOptions{})
		require.NoError(t, err)
		kinds := make([]string, len(left))
		for i, row := range left {
			kinds[i] = row.Kind
		}
		require.Equal(t, []string{"leaves nothing", "needed", "makes up"}, kinds)
		require.False(t, left[2].Dead)
		pushed, err := s.Redis.XLen(t.Context(), Large.stream()).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, pushed, "the commit pushes it")
		_, err = q.Discard(t.Context(), replace, one)
		require.ErrorIs(t, err, ErrNoJob)
	})
}

// Wake makes Unavailable jobs due, including those whose attempt began before it and ends after it.
// Other jobs wait for their backoff.
func TestWakeEndsPauses(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		results := make(chan Result, 10)
		cfg := pushOnly()
		cfg.Observe = func(r Result) { results <- r }
		q := newQueue(t, s, cfg)
		q.retryBase = time.Hour
		var back atomic.Bool
		begun, goOn := make(chan struct{}), make(chan struct{})
		q.Handle("waits", func(context.Context, *Job) error {
			if back.Load() {
				return nil
			}
			return Unavailable(errors.New("away"))
		})
		q.Handle("late", func(_ context.Context, j *Job) error {
			if j.Again {
				return nil
			}
			close(begun)
			<-goOn
			return Unavailable(errors.New("away"))
		})
		q.Handle("fails", func(context.Context, *Job) error { return errors.New("no luck") })
		start(t, q)
		enqueue(t, q, Small, "waits", 1, 2)
		enqueue(t, q, Large, "fails", 1)
		for range 3 {
			assert.Equal(t, Failed, receive(t, results).Outcome)
		}
		enqueue(t, q, Small, "late", 1)
		receive(t, begun)

		back.Store(true)
		woken, err := q.Wake(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, woken)
		for range 2 {
			r := receive(t, results)
			assert.Equal(t, Done, r.Outcome, r.Kind)
			assert.Equal(t, 1, r.Attempt, "its pauses begin anew")
		}
		close(goOn)
		// The next attempt may begin before the previous one is observed.
		assert.ElementsMatch(t, []Outcome{Failed, Done}, []Outcome{receive(t, results).Outcome, receive(t, results).Outcome})
		requireStreamsEmpty(t, q)
		assert.Equal(t, "fails", onlyJob(t, q).Kind)
		woken, err = q.Wake(t.Context())
		require.NoError(t, err)
		assert.Zero(t, woken)
	})
}

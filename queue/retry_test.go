package queue

import (
	"context"
	"errors"
	"fmt"
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
		assert.Equal(t, Stats{Pools: map[Pool]PoolStats{Small: {}, Large: {}}, Dead: 1}, stats)
		dead, err := q.List(t.Context(), ListOptions{Dead: true, Kind: "k"})
		require.NoError(t, err)
		require.Len(t, dead, 1)

		healed.Store(true)
		n, err := q.Retry(t.Context(), dead[0].ID, 12345)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		drain(t, q)
		left, err := q.List(t.Context(), ListOptions{})
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, brisk())
		q.Handle("k", func(context.Context, *Job) error {
			return fmt.Errorf("wrapped: %w", Discard(errors.New("hopeless")))
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

func TestUnknownKindFails(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.MaxAttempts = 1
		q := newQueue(t, s, cfg)
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		drain(t, q)
		assert.Contains(t, onlyJob(t, q).LastError, "no handler")
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
		// Two workers died of it: it is delivered, and was begun twice.
		require.NoError(t, q.createGroup(t.Context(), Small))
		dead := newQueue(t, s, cfg)
		entries, err := dead.readNew(t.Context(), Small, 1)
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
	w := &worker{Queue: &Queue{retryBase: time.Second}}
	for attempts, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 10: maxBackoff, 1000: maxBackoff,
	} {
		for range 100 {
			got := w.backoff(attempts)
			assert.GreaterOrEqual(t, got, want*3/4)
			assert.Less(t, got, want*5/4)
		}
	}
}

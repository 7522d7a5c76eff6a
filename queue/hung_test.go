package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// The context of a handler that waits for an answer in vain ends, and the job is tried again.
func TestHungHandlerIsEnded(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.StepLimit = 100 * time.Millisecond
		results := make(chan Result, 10)
		cfg.Observe = func(r Result) { results <- r }
		q := newQueue(t, s, cfg)
		var calls atomic.Int32
		q.Handle("k", func(ctx context.Context, j *Job) error {
			if calls.Add(1) > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		start(t, q)
		enqueue(t, q, Small, "k", nil)
		first := receive(t, results)
		assert.Equal(t, Failed, first.Outcome)
		require.ErrorIs(t, first.Err, errStepLimit)
		assert.Equal(t, Done, receive(t, results).Outcome)
		drain(t, q)
		requireStreamsEmpty(t, q)
	})
}

// A handler that ignores the end of its context loses its claim, and another process does the job.
func TestDeafHandlerLosesItsClaim(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		cfg := brisk()
		cfg.Pools = map[Pool]int{Small: 1} // the handler that ignores its context has the only slot
		results := make(chan Result, 10)
		cfg.Observe = func(r Result) { results <- r }
		cfg.StepLimit = 100 * time.Millisecond
		a := newQueue(t, s, cfg)
		began, end := make(chan struct{}), make(chan struct{})
		a.Handle("k", func(context.Context, *Job) error {
			close(began)
			<-end
			return errors.New("too late")
		})
		stop := start(t, a)
		enqueue(t, a, Small, "k", nil)
		receive(t, began)
		b := newQueue(t, s, brisk())
		done := make(chan *Job, 2)
		b.Handle("k", func(_ context.Context, j *Job) error { done <- j; return nil })
		start(t, b)
		assert.True(t, receive(t, done).Again)
		drain(t, b)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }() // the process takes no other job
		close(end)
		assert.Equal(t, Lost, receive(t, results).Outcome)
		receive(t, done)
		receive(t, stopped)
		drain(t, b)
	})
}

// Heartbeats require progress: if a step of an attempt does not end in time, its claim is not
// renewed.
func TestSignsOfLifeStandForProgress(t *testing.T) {
	t.Parallel()
	w := newWorker(newQueue(t, storagetest.Embedded(t), Config{}), Small, 3).held
	now := time.Now()
	r := w.adopt(entry{job: 1, id: "1-0"})
	require.NotNil(t, r)
	require.Nil(t, w.adopt(entry{job: 1, id: "1-1"}))
	ctx, stop := context.WithCancelCause(t.Context())
	limit := w.stepLimit
	alive := func(after time.Duration) []string { return w.alive(t.Context(), now.Add(after)) }

	assert.Len(t, alive(2*limit), 2, "what the queue does by itself has limits of its own")
	w.handle(r, stop)
	now = *r.steps.last.Load()
	assert.Len(t, alive(limit-1), 2)
	require.NoError(t, ctx.Err())
	later := now.Add(limit)
	r.steps.last.Store(&later) // a step ends
	assert.Len(t, alive(2*limit-1), 2)
	require.NoError(t, ctx.Err())
	assert.Len(t, alive(2*limit), 2, "it gets until the next heartbeat to end")
	require.ErrorIs(t, context.Cause(ctx), errStepLimit)
	assert.Empty(t, alive(2*limit+1))
	assert.Empty(t, w.jobs)
	require.NotNil(t, w.adopt(entry{job: 1, id: "1-2"}), "it may begin here again")
	w.free(t.Context(), r)
	assert.Len(t, w.jobs, 1, "the end of the old attempt is not that of the new one")
}

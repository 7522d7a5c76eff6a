package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"tideline/ent/job"
)

// attempt makes one attempt at the job of the entry, and stores how it ended.
//
// The first attempt, from the entry of the commit, is counted in the row only when it fails. Every later
// attempt is counted before it begins, so that a job that kills its process runs out of attempts.
func (w *worker) attempt(ctx context.Context, e entry, held *heldJob) {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	j, err := w.rows.load(storing, e)
	if err != nil {
		w.log.WarnContext(ctx, "job not started; the sweeper will push it again", "job", e.job, "error", err)
	}
	if j == nil {
		w.held.free(storing, held)
		cancel()
		return
	}
	cancel()

	ctx, span := w.cfg.Tracer.Job(ctx, j.Kind, j.Payload)
	begun, wakes := time.Now(), w.wakes.Load()
	res := Result{Job: j.ID, Kind: j.Kind, Pool: w.pool, Attempt: j.Attempt, Wait: max(0, begun.Sub(j.CreatedAt))}
	j.steps = &held.steps
	res.Err = w.call(ctx, j, held)
	res.Duration = time.Since(begun)

	end, err := w.rows.settle(ctx, j, res.Err)
	res.Outcome = end.outcome
	if err != nil {
		w.log.ErrorContext(ctx, "outcome of an attempt not stored; the job will run again",
			"job", j.ID, "kind", j.Kind, "outcome", res.Outcome, "error", err)
	}
	storing, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if end.inherited {
		w.held.handOver(storing, held)
	} else {
		w.held.free(storing, held)
	}
	// If the sweeper found the row due a moment ago, the job was still in the stream then, and the
	// sweeper would not add it again soon.
	if err == nil && !end.due.IsZero() && !w.now().Before(end.due) {
		w.held.requeue(storing, j.ID)
	}
	// A Wake during the attempt did not find the row, or found the job still in the stream.
	if end.waits && w.wakes.Load() != wakes {
		if _, err := w.wake(storing, job.ID(j.ID)); err != nil {
			w.log.WarnContext(ctx, "job waits for its next attempt", "job", j.ID, "error", err)
		}
	}
	w.report(storing, res)
	span.Int("tideline.job", j.ID)
	span.Int("tideline.attempt", int64(j.Attempt))
	span.Text("tideline.pool", string(w.pool))
	if res.Outcome != Done && res.Outcome != Returned {
		span.Fail(string(res.Outcome))
	}
	span.End(nil)
}

// call runs the handler and turns a panic into an error. While it runs a small job, large jobs give
// way.
func (w *worker) call(ctx context.Context, j *Job, held *heldJob) (err error) {
	h, ok := w.handlers[j.Kind]
	if !ok {
		// A process of a newer version has a handler. An older one must not use up the attempts.
		return Unavailable(fmt.Errorf("no handler for jobs of kind %q", j.Kind))
	}
	if j.Pool == Small {
		w.priority.enter()
		defer w.priority.leave()
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			w.log.ErrorContext(ctx, "handler panicked", "job", j.ID, "kind", j.Kind,
				"panic", r, "stack", string(debug.Stack()))
		}
	}()
	ctx, stop := context.WithCancelCause(ctx)
	w.held.handle(held, stop)
	defer w.held.handle(held, nil)
	defer stop(nil)
	err = h(ctx, j)
	if err != nil && errors.Is(context.Cause(ctx), errStepLimit) {
		return fmt.Errorf("%w: %w", errStepLimit, err)
	}
	return err
}

// report logs a result and passes it to Config.Observe.
func (q *Queue) report(ctx context.Context, res Result) {
	args := []any{"job", res.Job, "kind", res.Kind, "attempt", res.Attempt, "error", res.Err}
	switch res.Outcome {
	case Failed:
		q.log.WarnContext(ctx, "job failed and will be tried again", args...)
	case Dead:
		q.log.ErrorContext(ctx, "job is given up", args...)
	case Lost:
		q.log.WarnContext(ctx, "job will run again: an attempt lost its claim and kept running", args...)
	case Returned:
		q.log.DebugContext(ctx, "job "+string(res.Outcome), args...)
	}
	if q.cfg.Observe != nil {
		q.cfg.Observe(res)
	}
}

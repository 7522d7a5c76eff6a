package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/job"
)

const (
	maxBackoff = 5 * time.Minute
	// storeTimeout bounds how long it takes to store how an attempt ended.
	storeTimeout = 10 * time.Second
	maxLastError = 500 // characters
)

// attempt makes one attempt at the job of the entry, and stores how it ended.
//
// The row counts attempts from the first failure on, and then each before it
// begins, so that a job that takes its process down runs out of attempts too.
func (w *worker) attempt(ctx context.Context, e entry) {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	j, err := w.load(storing, e)
	if err != nil {
		w.log.WarnContext(ctx, "job cannot be started; the sweeper brings it again", "job", e.job, "err", err)
	}
	if j == nil {
		w.free(storing, e.job)
		cancel()
		return
	}
	cancel()

	begun := time.Now()
	res := Result{Kind: j.Kind, Pool: w.pool, Attempt: j.Attempt, Wait: max(0, begun.Sub(j.CreatedAt))}
	res.Err = w.call(ctx, j)
	res.Duration = time.Since(begun)

	storing, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	var due time.Time
	res.Outcome, due, err = w.conclude(storing, j, res.Err, ctx.Err() != nil)
	if err != nil {
		w.log.ErrorContext(ctx, "the end of an attempt is not stored; it will be repeated",
			"job", j.ID, "kind", j.Kind, "outcome", res.Outcome, "err", err)
	}
	w.free(storing, j.ID)
	// A sweeper that found the row due a moment ago found the job still in the
	// stream, and would not add it again soon.
	if err == nil && !due.IsZero() && !now().Before(due) {
		w.requeue(storing, j.ID)
	}
	w.report(storing, j.ID, res)
}

// load returns the job to run, nil if there is none any more.
func (w *worker) load(ctx context.Context, e entry) (*Job, error) {
	if e.kind != "" {
		return &Job{ID: e.job, Kind: e.kind, Pool: w.pool, Payload: e.payload, Attempt: 1, CreatedAt: time.UnixMicro(e.at), db: w.db, priority: &w.priority}, nil
	}
	row, err := w.db.Job.Get(ctx, e.job)
	if ent.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load job: %w", err)
	}
	if row.Dead {
		return nil, nil
	}
	j := &Job{
		ID: row.ID, Kind: row.Kind, Pool: w.pool, Payload: row.Payload, State: row.State,
		Attempt: row.Attempts + 1, Again: true, CreatedAt: row.CreatedAt, db: w.db, priority: &w.priority,
	}
	if j.Attempt > w.cfg.MaxAttempts {
		// Failures end before this: the last attempt's worker died.
		lost := fmt.Errorf("attempt %d never ended (earlier: %q)", row.Attempts, row.LastError)
		if err := w.bury(ctx, row.ID, row.Attempts, lost); err != nil {
			return nil, err
		}
		w.report(ctx, row.ID, Result{
			Kind: row.Kind, Pool: w.pool, Attempt: row.Attempts,
			Wait: max(0, time.Since(row.CreatedAt)), Outcome: Dead, Err: lost,
		})
		return nil, nil
	}
	n, err := w.db.Job.Update().Where(job.ID(row.ID), job.Dead(false)).SetAttempts(j.Attempt).Save(ctx)
	if err != nil {
		return nil, fmt.Errorf("count attempt: %w", err)
	}
	if n == 0 {
		return nil, nil
	}
	return j, nil
}

// call runs the handler and turns a panic into an error. Large jobs give way while a
// small one runs.
func (w *worker) call(ctx context.Context, j *Job) (err error) {
	h, ok := w.handlers[j.Kind]
	if !ok {
		return fmt.Errorf("no handler for jobs of kind %q", j.Kind)
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
	return h(ctx, j)
}

// conclude stores how the attempt ended. It returns what that means for the job, and
// when the job is due again, if it is. Another attempt may have concluded the job:
// then the row is gone, and nothing is stored.
func (w *worker) conclude(ctx context.Context, j *Job, err error, interrupted bool) (Outcome, time.Time, error) {
	var drop *discarded
	switch {
	case err == nil:
		_, err := w.db.Job.Delete().Where(job.ID(j.ID)).Exec(ctx)
		return Done, time.Time{}, err
	case errors.As(err, &drop):
		return Dead, time.Time{}, w.bury(ctx, j.ID, j.Attempt, drop.err)
	case interrupted:
		due := now()
		return Returned, due, w.postpone(ctx, j.ID, j.Attempt-1, due, nil)
	case j.Attempt >= w.cfg.MaxAttempts:
		return Dead, time.Time{}, w.bury(ctx, j.ID, j.Attempt, err)
	default:
		due := now().Add(w.backoff(j.Attempt))
		return Failed, due, w.postpone(ctx, j.ID, j.Attempt, due, err)
	}
}

// postpone stores when the job is due again. With a nil cause the last error stays.
func (w *worker) postpone(ctx context.Context, id int64, attempts int, due time.Time, cause error) error {
	up := w.db.Job.Update().Where(job.ID(id)).SetAttempts(attempts).SetDueAt(due)
	if cause != nil {
		up.SetLastError(storable(cause))
	}
	if err := up.Exec(ctx); err != nil {
		return fmt.Errorf("postpone job: %w", err)
	}
	return nil
}

// bury gives the job up.
func (w *worker) bury(ctx context.Context, id int64, attempts int, cause error) error {
	err := w.db.Job.Update().Where(job.ID(id)).
		SetAttempts(attempts).SetDead(true).SetLastError(storable(cause)).Exec(ctx)
	if err != nil {
		return fmt.Errorf("give job up: %w", err)
	}
	return nil
}

// backoff returns the wait after so many attempts. It doubles, ±25 % so that jobs
// that failed at the same time do not come back at the same time.
func (w *worker) backoff(attempts int) time.Duration {
	d := min(w.retryBase<<min(attempts-1, 20), maxBackoff)
	return d*3/4 + rand.N(d/2)
}

func (w *worker) report(ctx context.Context, id int64, res Result) {
	args := []any{"job", id, "kind", res.Kind, "attempt", res.Attempt, "err", res.Err}
	switch res.Outcome {
	case Failed:
		w.log.WarnContext(ctx, "job failed and will be tried again", args...)
	case Dead:
		w.log.ErrorContext(ctx, "job is given up", args...)
	case Returned:
		w.log.DebugContext(ctx, "job "+string(res.Outcome), args...)
	}
	if w.cfg.Observe != nil {
		w.cfg.Observe(res)
	}
}

// storable trims an error's text to what the column takes on every database.
func storable(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if runes := []rune(text); len(runes) > maxLastError {
		return string(runes[:maxLastError])
	}
	return text
}

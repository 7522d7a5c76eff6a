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
	// maxStoreWait is the longest pause between two tries to store the end of an attempt.
	maxStoreWait = 5 * time.Second
	maxLastError = 500 // characters
	// spareAttempts is the number of attempts that a job still has after it was Unavailable, for
	// other failures.
	spareAttempts = 3
	// waiting is the claim of a row whose last attempt was Unavailable. It is not the name of any
	// attempt.
	waiting = -1
)

// attempt makes one attempt at the job of the entry, and stores how it ended.
//
// The row counts an attempt that runs from an entry of a commit only when it fails. It counts every
// later attempt before it begins, so that a job that kills its process runs out of attempts.
func (w *worker) attempt(ctx context.Context, e entry, r *running) {
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	j, err := w.load(storing, e)
	if err != nil {
		w.log.WarnContext(ctx, "job cannot be started; the sweeper brings it again", "job", e.job, "error", err)
	}
	if j == nil {
		w.free(storing, r)
		cancel()
		return
	}
	cancel()

	ctx, span := w.cfg.Tracer.Job(ctx, j.Kind, j.Payload)
	begun, wakes := time.Now(), w.wakes.Load()
	res := Result{Job: j.ID, Kind: j.Kind, Pool: w.pool, Attempt: j.Attempt, Wait: max(0, begun.Sub(j.CreatedAt))}
	j.steps = &r.steps
	res.Err = w.call(ctx, j, r)
	res.Duration = time.Since(begun)

	end, err := w.settle(ctx, j, res.Err)
	res.Outcome = end.outcome
	if err != nil {
		w.log.ErrorContext(ctx, "the end of an attempt is not stored; it will be repeated",
			"job", j.ID, "kind", j.Kind, "outcome", res.Outcome, "error", err)
	}
	storing, cancel = context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if end.inherited {
		w.handOver(storing, r)
	} else {
		w.free(storing, r)
	}
	// If the sweeper found the row due a moment ago, the job was still in the stream then, and the
	// sweeper would not add it again soon.
	if err == nil && !end.due.IsZero() && !w.now().Before(end.due) {
		w.requeue(storing, j.ID)
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

// load returns the job to run, or nil if there is nothing left to do.
func (w *worker) load(ctx context.Context, e entry) (*Job, error) {
	if e.kind != "" {
		return &Job{
			ID: e.job, Kind: e.kind, Pool: w.pool, Payload: e.payload, Attempt: 1, CreatedAt: time.UnixMicro(e.at),
			claim: newClaim(0, 0, w.beats), db: w.db, priority: &w.priority,
		}, nil
	}
	for {
		j, changed, err := w.take(ctx, e.job)
		if !changed {
			return j, err
		}
	}
}

// take claims the job by its row, from the attempt that has the claim, if any. It returns nil if
// the job is finished or dead. It sets changed if another process changed the row between the read
// and the update.
func (w *worker) take(ctx context.Context, id int64) (_ *Job, changed bool, _ error) {
	row, err := w.db.Job.Get(ctx, id)
	if ent.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("load job: %w", err)
	}
	if row.Dead {
		return nil, false, nil
	}
	j := &Job{
		ID: row.ID, Kind: row.Kind, Pool: w.pool, Payload: row.Payload, State: row.State,
		Attempt: row.Attempts + 1, Again: true, CreatedAt: row.CreatedAt,
		claim: newClaim(newName(), row.Attempts+1, w.beats), db: w.db, priority: &w.priority,
	}
	take := func(jobs *ent.JobClient) *ent.JobUpdate {
		return jobs.Update().Where(job.ID(id), job.Dead(false),
			job.Claim(row.Claim), job.Attempts(row.Attempts), job.Restart(row.Restart)).SetClaim(j.claim.name)
	}
	var n int
	var lost error
	switch {
	case row.Restart: // runs again, however many attempts there were
		n, err = take(w.db.Job).SetAttempts(j.Attempt).SetRestart(false).ClearState().Save(ctx)
		j.State = nil
	case j.Attempt > w.cfg.MaxAttempts:
		// A failure would have made the row dead already, so the worker of the last attempt died.
		lost = fmt.Errorf("attempt %d never ended (earlier: %q)", row.Attempts, row.LastError)
		n, err = w.giveUp(ctx, j, row.Attempts, lost, take)
	default:
		n, err = take(w.db.Job).SetAttempts(j.Attempt).Save(ctx)
	}
	if err != nil {
		return nil, false, fmt.Errorf("claim job: %w", err)
	}
	if n == 0 {
		return nil, true, nil
	}
	if lost != nil {
		w.report(ctx, Result{
			Job: row.ID, Kind: row.Kind, Pool: w.pool, Attempt: row.Attempts,
			Wait: max(0, w.now().Sub(row.CreatedAt)), Outcome: Dead, Err: lost,
		})
		return nil, false, nil
	}
	return j, false, nil
}

// call runs the handler and turns a panic into an error. While it runs a small job, large jobs give
// way.
func (w *worker) call(ctx context.Context, j *Job, r *running) (err error) {
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
	w.handle(r, stop)
	defer w.handle(r, nil)
	defer stop(nil)
	err = h(ctx, j)
	if err != nil && errors.Is(context.Cause(ctx), errStepLimit) {
		return fmt.Errorf("%w: %w", errStepLimit, err)
	}
	return err
}

// handle stores the function that stops the handler of the attempt, or nil when the handler has
// returned.
func (w *worker) handle(r *running, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.stop = stop
	r.steps.done()
}

// ending describes how an attempt ended and what its job needs next.
type ending struct {
	outcome   Outcome
	due       time.Time // when the job is due again; zero if it is not
	inherited bool      // the entries in the stream belong to another attempt
	waits     bool      // the attempt ended as Unavailable, so Wake finds the row
}

// settle stores how the attempt ended, and retries while SQL fails. An attempt that lost its claim
// may have to mark its job for another run, and no other process knows that. Until the end is
// stored, the attempt keeps its slot. settle gives up only after ctx has ended.
func (w *worker) settle(ctx context.Context, j *Job, cause error) (ending, error) {
	interrupted := ctx.Err() != nil
	for wait := troubleWait; ; wait = min(2*wait, maxStoreWait) {
		last := ctx.Err() != nil
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		end, err := w.conclude(storing, j, cause, interrupted)
		cancel()
		if err == nil || last {
			return end, err
		}
		w.log.WarnContext(ctx, "the end of an attempt is not stored yet", "job", j.ID, "kind", j.Kind, "error", err)
		pause(ctx, wait)
	}
}

// conclude stores how the attempt ended, if the attempt still has its claim.
func (w *worker) conclude(ctx context.Context, j *Job, err error, interrupted bool) (end ending, _ error) {
	if err == nil {
		return w.finish(ctx, j)
	}
	own := func(jobs *ent.JobClient) *ent.JobUpdate { return jobs.Update().Where(j.own()) }
	var drop *hopeless
	var wait *unavailable
	var n int
	switch cause := err; {
	case errors.As(cause, &drop):
		end.outcome = Dead
		n, err = w.giveUp(ctx, j, j.Attempt, drop.err, own)
	case interrupted:
		end.outcome, end.due = Returned, w.now()
		n, err = own(w.db.Job).SetAttempts(j.Attempt - 1).SetDueAt(end.due).Save(ctx)
	case j.Attempt >= w.cfg.MaxAttempts && !errors.As(cause, &wait):
		end.outcome = Dead
		n, err = w.giveUp(ctx, j, j.Attempt, cause, own)
	default:
		end.outcome, end.due = Failed, w.now().Add(w.backoff(j.Attempt))
		failed := own(w.db.Job).SetDueAt(end.due).SetLastError(storable(cause))
		if end.waits = errors.As(cause, &wait); end.waits {
			failed.SetAttempts(min(j.Attempt, max(0, w.cfg.MaxAttempts-spareAttempts))).SetClaim(waiting)
		} else {
			failed.SetAttempts(j.Attempt)
		}
		n, err = failed.Save(ctx)
	}
	if err != nil {
		return end, fmt.Errorf("store the end of the attempt: %w", err)
	}
	if n == 0 {
		return w.again(ctx, j)
	}
	return end, nil
}

// finish ends a job whose handler returned nil. If the attempt has lost its claim, it leaves the
// row to its successor. The job need not run again because of this attempt: its handler read SQL
// after its last write.
func (w *worker) finish(ctx context.Context, j *Job) (ending, error) {
	deleted, err := w.end(ctx, j)
	if err != nil || deleted {
		return ending{outcome: Done}, err
	}
	due := w.now()
	n, err := w.db.Job.Update().Where(j.own()).SetDueAt(due).Save(ctx)
	if err != nil || n > 0 { // the row is marked restart: the job runs again
		return ending{outcome: Done, due: due}, err
	}
	left, err := w.db.Job.Query().Where(job.ID(j.ID)).Exist(ctx)
	return ending{outcome: Done, inherited: left}, err
}

// giveUp applies update and makes the row dead. In the same transaction it enqueues the follow-up
// job (see WhenGivenUp). It returns how many rows were updated: 0 if update no longer matches the
// row.
func (w *worker) giveUp(ctx context.Context, j *Job, attempts int, cause error, update func(*ent.JobClient) *ent.JobUpdate) (n int, err error) {
	tx, err := w.db.Tx(ctx)
	if err != nil {
		return 0, err
	}
	n, err = update(tx.Job).SetAttempts(attempts).SetDead(true).SetLastError(storable(cause)).Save(ctx)
	if then := w.givenUp[j.Kind]; err == nil && n > 0 && then != "" {
		err = w.Enqueue(ctx, tx, w.pool, then, j.Payload)
	}
	if err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	return n, tx.Commit()
}

// backoff returns the wait after this number of attempts. It doubles each time, ±25 % so that jobs
// that failed together do not come back together.
func (w *worker) backoff(attempts int) time.Duration {
	d := min(w.retryBase<<min(attempts-1, 20), maxBackoff)
	return d*3/4 + rand.N(d/2)
}

func (w *worker) report(ctx context.Context, res Result) {
	args := []any{"job", res.Job, "kind", res.Kind, "attempt", res.Attempt, "error", res.Err}
	switch res.Outcome {
	case Failed:
		w.log.WarnContext(ctx, "job failed and will be tried again", args...)
	case Dead:
		w.log.ErrorContext(ctx, "job is given up", args...)
	case Lost:
		w.log.WarnContext(ctx, "job is done once more: an attempt lost its claim and went on", args...)
	case Returned:
		w.log.DebugContext(ctx, "job "+string(res.Outcome), args...)
	}
	if w.cfg.Observe != nil {
		w.cfg.Observe(res)
	}
}

// storable trims the text of an error to a length and encoding that every database accepts.
func storable(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if runes := []rune(text); len(runes) > maxLastError {
		return string(runes[:maxLastError])
	}
	return text
}

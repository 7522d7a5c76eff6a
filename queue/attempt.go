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
	// maxStoreWait is the longest pause between two tries to store it.
	maxStoreWait = 5 * time.Second
	maxLastError = 500 // characters
	// spareAttempts is how many attempts a job that was Unavailable has left, whatever
	// happens to it then.
	spareAttempts = 3
	// waiting is the claim of a row whose last attempt was Unavailable. No attempt has
	// this name.
	waiting = -1
)

// attempt makes one attempt at the job of the entry, and stores how it ended.
//
// The row counts attempts from the first failure on, and then each before it
// begins, so that a job that takes its process down runs out of attempts too.
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
		w.bequeath(storing, r)
	} else {
		w.free(storing, r)
	}
	// A sweeper that found the row due a moment ago found the job still in the
	// stream, and would not add it again soon.
	if err == nil && !end.due.IsZero() && !w.now().Before(end.due) {
		w.requeue(storing, j.ID)
	}
	// A Wake during the attempt did not find the row, or found its entry in the stream.
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

// load returns the job to run, nil if there is none any more.
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

// take takes the job over from whoever has the claim to it. It returns nil if there is
// nothing to do any more, and changed if the row changed between the look and the write.
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
	case row.Restart: // done once more, whatever the attempts
		n, err = take(w.db.Job).SetAttempts(j.Attempt).SetRestart(false).ClearState().Save(ctx)
		j.State = nil
	case j.Attempt > w.cfg.MaxAttempts:
		// Failures end before this: the last attempt's worker died.
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

// call runs the handler and turns a panic into an error. Large jobs give way while a
// small one runs.
func (w *worker) call(ctx context.Context, j *Job, r *running) (err error) {
	h, ok := w.handlers[j.Kind]
	if !ok {
		// A process of a newer version knows it: one that is older must not use its attempts up.
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

// handle says how the handler of the attempt is stopped, nil when it has returned.
func (w *worker) handle(r *running, stop context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.stop = stop
	r.steps.done()
}

// ending is what the end of an attempt means for its job.
type ending struct {
	outcome   Outcome
	due       time.Time // when the job is due again, if it is
	inherited bool      // the entries in the stream are another attempt's by now
	waits     bool      // the attempt was Unavailable: Wake finds the row
}

// settle stores how the attempt ended, as soon as SQL can: an attempt that has lost its
// claim leaves something to do that nobody else knows of. Until then the attempt keeps
// its slot. It gives up only when ctx has ended.
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

// conclude stores how the attempt ended, if it still has the claim to the job.
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

// finish ends a job that is done. The row of an attempt that has lost its claim is
// left to its heir. The attempt itself owes nothing: it has looked at the truth after
// the last thing that it wrote.
func (w *worker) finish(ctx context.Context, j *Job) (ending, error) {
	deleted, err := w.end(ctx, j)
	if err != nil || deleted {
		return ending{outcome: Done}, err
	}
	due := w.now()
	n, err := w.db.Job.Update().Where(j.own()).SetDueAt(due).Save(ctx)
	if err != nil || n > 0 { // it is to be done once more
		return ending{outcome: Done, due: due}, err
	}
	left, err := w.db.Job.Query().Where(job.ID(j.ID)).Exist(ctx)
	return ending{outcome: Done, inherited: left}, err
}

// giveUp makes the row dead, if the update still finds it, and enqueues the job that
// follows. It returns how many rows were updated.
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

// backoff returns the wait after so many attempts. It doubles, ±25 % so that jobs
// that failed at the same time do not come back at the same time.
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

// storable trims an error's text to what the column takes on every database.
func storable(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if runes := []rune(text); len(runes) > maxLastError {
		return string(runes[:maxLastError])
	}
	return text
}

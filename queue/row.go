package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/internal/batch"
	"tideline/internal/clock"
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

// jobRows reads and writes the rows of the jobs of one pool: how an attempt takes a job, and how an
// attempt ends. It is safe for concurrent use.
type jobRows struct {
	*Queue
	pool  Pool
	beats *heartbeat // of the claims that attempts take
	ends  batch.Batcher[*end]
}

// load returns the job to run, or nil if there is nothing left to do.
func (r *jobRows) load(ctx context.Context, e entry) (*Job, error) {
	if e.kind != "" {
		return &Job{
			ID: e.job, Kind: e.kind, Pool: r.pool, Payload: e.payload, Attempt: 1, CreatedAt: time.UnixMicro(e.at),
			claim: newClaim(0, 0, r.beats), db: r.db, priority: &r.priority,
		}, nil
	}
	for {
		j, changed, err := r.take(ctx, e.job)
		if !changed {
			return j, err
		}
	}
}

// take claims the job by its row, from the attempt that has the claim, if any. It returns nil if
// the job is finished or dead. It sets changed if another process changed the row between the read
// and the update.
func (r *jobRows) take(ctx context.Context, id int64) (_ *Job, changed bool, _ error) {
	row, err := r.db.Job.Get(ctx, id)
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
		ID: row.ID, Kind: row.Kind, Pool: r.pool, Payload: row.Payload, State: row.State,
		Attempt: row.Attempts + 1, Again: true, CreatedAt: row.CreatedAt,
		claim: newClaim(newName(), row.Attempts+1, r.beats), db: r.db, priority: &r.priority,
	}
	take := func(jobs *ent.JobClient) *ent.JobUpdate {
		return jobs.Update().Where(job.ID(id), job.Dead(false),
			job.Claim(row.Claim), job.Attempts(row.Attempts), job.Restart(row.Restart)).SetClaim(j.claim.name)
	}
	var n int
	var lost error
	switch {
	case row.Restart: // runs again, however many attempts there were
		n, err = take(r.db.Job).SetAttempts(j.Attempt).SetRestart(false).ClearState().Save(ctx)
		j.State = nil
	case j.Attempt > r.cfg.MaxAttempts:
		// A failure would have made the row dead already, so the worker of the last attempt died.
		lost = fmt.Errorf("attempt %d never ended (earlier: %q)", row.Attempts, row.LastError)
		n, err = r.giveUp(ctx, j, row.Attempts, lost, take)
	default:
		n, err = take(r.db.Job).SetAttempts(j.Attempt).Save(ctx)
	}
	if err != nil {
		return nil, false, fmt.Errorf("claim job: %w", err)
	}
	if n == 0 {
		return nil, true, nil
	}
	if lost != nil {
		r.report(ctx, Result{
			Job: row.ID, Kind: row.Kind, Pool: r.pool, Attempt: row.Attempts,
			Wait: max(0, r.now().Sub(row.CreatedAt)), Outcome: Dead, Err: lost,
		})
		return nil, false, nil
	}
	return j, false, nil
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
func (r *jobRows) settle(ctx context.Context, j *Job, cause error) (ending, error) {
	interrupted := ctx.Err() != nil
	for wait := troubleWait; ; wait = min(2*wait, maxStoreWait) {
		last := ctx.Err() != nil
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		end, err := r.conclude(storing, j, cause, interrupted)
		cancel()
		if err == nil || last {
			return end, err
		}
		r.log.WarnContext(ctx, "the end of an attempt is not stored yet", "job", j.ID, "kind", j.Kind, "error", err)
		_ = clock.Sleep(ctx, wait)
	}
}

// conclude stores how the attempt ended, if the attempt still has its claim.
func (r *jobRows) conclude(ctx context.Context, j *Job, err error, interrupted bool) (end ending, _ error) {
	if err == nil {
		return r.finish(ctx, j)
	}
	own := func(jobs *ent.JobClient) *ent.JobUpdate { return jobs.Update().Where(j.own()) }
	var drop *hopeless
	var wait *unavailable
	var n int
	switch cause := err; {
	case errors.As(cause, &drop):
		end.outcome = Dead
		n, err = r.giveUp(ctx, j, j.Attempt, drop.err, own)
	case interrupted:
		end.outcome, end.due = Returned, r.now()
		n, err = own(r.db.Job).SetAttempts(j.Attempt - 1).SetDueAt(end.due).Save(ctx)
	case j.Attempt >= r.cfg.MaxAttempts && !errors.As(cause, &wait):
		end.outcome = Dead
		n, err = r.giveUp(ctx, j, j.Attempt, cause, own)
	default:
		end.outcome, end.due = Failed, r.now().Add(r.backoff(j.Attempt))
		failed := own(r.db.Job).SetDueAt(end.due).SetLastError(storable(cause))
		if end.waits = errors.As(cause, &wait); end.waits {
			failed.SetAttempts(min(j.Attempt, max(0, r.cfg.MaxAttempts-spareAttempts))).SetClaim(waiting)
		} else {
			failed.SetAttempts(j.Attempt)
		}
		n, err = failed.Save(ctx)
	}
	if err != nil {
		return end, fmt.Errorf("store the end of the attempt: %w", err)
	}
	if n == 0 {
		return r.again(ctx, j)
	}
	return end, nil
}

// finish ends a job whose handler returned nil. If the attempt has lost its claim, it leaves the
// row to its successor. The job need not run again because of this attempt: its handler read SQL
// after its last write.
func (r *jobRows) finish(ctx context.Context, j *Job) (ending, error) {
	deleted, err := r.end(ctx, j)
	if err != nil || deleted {
		return ending{outcome: Done}, err
	}
	due := r.now()
	n, err := r.db.Job.Update().Where(j.own()).SetDueAt(due).Save(ctx)
	if err != nil || n > 0 { // the row is marked restart: the job runs again
		return ending{outcome: Done, due: due}, err
	}
	left, err := r.db.Job.Query().Where(job.ID(j.ID)).Exist(ctx)
	return ending{outcome: Done, inherited: left}, err
}

// giveUp applies update and makes the row dead. In the same transaction it enqueues the follow-up
// job (see WhenGivenUp). It returns how many rows were updated: 0 if update no longer matches the
// row.
func (r *jobRows) giveUp(ctx context.Context, j *Job, attempts int, cause error, update func(*ent.JobClient) *ent.JobUpdate) (n int, err error) {
	tx, err := r.db.Tx(ctx)
	if err != nil {
		return 0, err
	}
	n, err = update(tx.Job).SetAttempts(attempts).SetDead(true).SetLastError(storable(cause)).Save(ctx)
	if then := r.givenUp[j.Kind]; err == nil && n > 0 && then != "" {
		err = r.Enqueue(ctx, tx, r.pool, then, j.Payload)
	}
	if err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	return n, tx.Commit()
}

// backoff returns the wait after this number of attempts. It doubles each time, ±25 % so that jobs
// that failed together do not come back together.
func (r *jobRows) backoff(attempts int) time.Duration {
	d := min(r.retryBase<<min(attempts-1, 20), maxBackoff)
	return d*3/4 + rand.N(d/2)
}

// again makes the job run again from its beginning, after an attempt that had lost its claim ended
// with an error. That attempt may have written stale data after its successor last read SQL. A
// successor that is still running continues, but leaves the row when it succeeds. If the row is
// gone because a successor finished, again inserts it.
func (r *jobRows) again(ctx context.Context, j *Job) (ending, error) {
	due := r.now()
	n, err := r.db.Job.Update().Where(job.ID(j.ID)).SetRestart(true).ClearState().SetDead(false).SetDueAt(due).Save(ctx)
	if err != nil {
		return ending{}, fmt.Errorf("restart job: %w", err)
	}
	if n > 0 {
		return ending{outcome: Lost, inherited: true}, nil
	}
	err = r.db.Job.Create().SetID(j.ID).SetKind(j.Kind).SetPool(string(j.Pool)).SetPayload(j.Payload).
		SetCreatedAt(due.UTC()).SetDueAt(due).SetClaim(newName()).SetRestart(true).
		OnConflictColumns(job.FieldID).Update(func(u *ent.JobUpsert) {
		u.SetRestart(true).SetDead(false).SetDueAt(due) // another attempt that lost its claim inserted it first
	}).Exec(ctx)
	if err != nil {
		return ending{}, fmt.Errorf("insert job again: %w", err)
	}
	return ending{outcome: Lost, due: due}, nil
}

// storable trims the text of an error to a length and encoding that every database accepts.
func storable(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if runes := []rune(text); len(runes) > maxLastError {
		return string(runes[:maxLastError])
	}
	return text
}

package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/predicate"
)

// ErrClaimLost says that another attempt has taken the job over, as happens to a
// process that gives no sign of life for Config.ClaimIdle. What the caller has read
// may be old: it should write nothing more, and return the error.
var ErrClaimLost = errors.New("the claim is lost")

// claim is the right of one attempt to store how its job goes on.
type claim struct {
	name    int64 // in the row; 0: the plain first attempt, which the row does not know
	counted int   // attempts that the row counts meanwhile
	beats   *heartbeat
	late    atomic.Int64 // of the heartbeat, as of the last look at the row
}

func newClaim(name int64, counted int, h *heartbeat) *claim {
	c := &claim{name: name, counted: counted, beats: h}
	c.late.Store(h.lateBeats())
	return c
}

// newName names an attempt. It is random, so that an attempt that has lost its claim never comes
// by the name of a later one, not even when the row was deleted and made again.
func newName() int64 { return 1 + rand.Int64N(1<<62) }

// own matches the row while the attempt has the claim to it.
func (j *Job) own() predicate.Job {
	return job.And(job.ID(j.ID), job.Claim(j.claim.name), job.Attempts(j.claim.counted), job.Dead(false))
}

// Confirm returns nil while the attempt has the claim to its job, and ErrClaimLost when another
// has taken it over. Call it between reading and writing: after a pause of the process, what was
// read may be old. A claim may still be lost between Confirm and the write; the job is then done
// once more. Confirm ends a step, see Config.StepLimit.
//
// Cost: none while the process gives its signs of life; otherwise one look-up by primary key.
func (j *Job) Confirm(ctx context.Context) error {
	j.steps.done()
	late := j.claim.beats.lateBeats()
	if late == j.claim.late.Load() && j.claim.beats.alive() {
		return nil
	}
	own, err := j.db.Job.Query().Where(j.own()).Exist(ctx)
	if err != nil {
		return fmt.Errorf("confirm job %d: %w", j.ID, err)
	}
	if !own {
		return fmt.Errorf("confirm job %d: %w", j.ID, ErrClaimLost)
	}
	j.claim.late.Store(late)
	return nil
}

// again has the job done from its beginning after an attempt that had lost its claim
// ended with an error. That attempt may have written what it had read before, when its
// heir had looked for the last time. The heir is not disturbed: its success leaves the
// row. If the heir is done already, the job is a new one.
func (w *worker) again(ctx context.Context, j *Job) (ending, error) {
	due := w.now()
	n, err := w.db.Job.Update().Where(job.ID(j.ID)).SetRestart(true).ClearState().SetDead(false).SetDueAt(due).Save(ctx)
	if err != nil {
		return ending{}, fmt.Errorf("restart job: %w", err)
	}
	if n > 0 {
		return ending{outcome: Lost, inherited: true}, nil
	}
	err = w.db.Job.Create().SetID(j.ID).SetKind(j.Kind).SetPool(string(j.Pool)).SetPayload(j.Payload).
		SetCreatedAt(due.UTC()).SetDueAt(due).SetClaim(newName()).SetRestart(true).
		OnConflictColumns(job.FieldID).Update(func(u *ent.JobUpsert) {
		u.SetRestart(true).SetDead(false).SetDueAt(due) // another attempt that lost its claim was faster
	}).Exec(ctx)
	if err != nil {
		return ending{}, fmt.Errorf("insert job again: %w", err)
	}
	return ending{outcome: Lost, due: due}, nil
}

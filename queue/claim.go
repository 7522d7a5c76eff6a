package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"tideline/ent/job"
	"tideline/ent/predicate"
)

// ErrClaimLost says that another attempt has taken the job over, because this process sent no
// heartbeat for Config.ClaimIdle. Data that the caller has read may be stale: it should write
// nothing more and return the error.
var ErrClaimLost = errors.New("the claim is lost")

// claim is the right of one attempt to store the progress and the end of its job.
type claim struct {
	name    int64 // column claim of the row; 0 for the first attempt from an entry of a commit, which does not write the row
	counted int   // column attempts of the row during this attempt
	beats   *heartbeat
	late    atomic.Int64 // beats.lateBeats when the row was last checked
}

func newClaim(name int64, counted int, h *heartbeat) *claim {
	c := &claim{name: name, counted: counted, beats: h}
	c.late.Store(h.lateBeats())
	return c
}

// newName returns a random name for an attempt. An attempt that has lost its claim thus never
// matches a later one, even if the row was deleted and inserted again.
func newName() int64 { return 1 + rand.Int64N(1<<62) }

// own matches the row while the attempt has its claim.
func (j *Job) own() predicate.Job {
	return job.And(job.ID(j.ID), job.Claim(j.claim.name), job.Attempts(j.claim.counted), job.Dead(false))
}

// Confirm returns nil while the attempt has the claim to its job, and ErrClaimLost when another
// attempt has taken the job over. Call it between reading and writing: if the process was
// suspended, the data may be stale. The claim may still be lost between Confirm and the write; the
// job then runs again. Confirm ends a step (see Config.StepLimit).
//
// Cost: none while heartbeats are on time; otherwise one query by primary key.
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

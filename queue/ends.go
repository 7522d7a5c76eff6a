package queue

import (
	"context"
	"errors"
	"slices"

	"tideline/ent"
	"tideline/ent/job"
)

// maxEnds is how many jobs end in one transaction. Each batch size is a statement of its own to
// prepare, so the bound is small.
const maxEnds = 16

// end is a job whose handler has returned nil.
type end struct {
	job     *Job
	deleted bool // the row; false if the attempt lost its claim or the job must run again
	err     error
}

// end deletes the row of a job, inserts its parts and stores its result, and reports whether it did.
// It does nothing if the attempt has lost its claim or the job must run again.
func (r *jobRows) end(ctx context.Context, j *Job) (deleted bool, err error) {
	e := &end{job: j}
	r.ends.Do(e, maxEnds, func(batch []*end) { r.endAll(ctx, batch) })
	return e.deleted, e.err
}

// endAll ends the jobs of a batch. The first attempts that never wrote their rows end in one
// transaction, if all of them still have their claims. The other jobs end one by one.
func (r *jobRows) endAll(ctx context.Context, batch []*end) {
	var plain []*end
	for _, e := range batch {
		if e.job.claim.name == 0 && e.job.claim.counted == 0 {
			plain = append(plain, e)
		}
	}
	together := false
	if len(plain) > 1 {
		ids := make([]int64, len(plain))
		for i, e := range plain {
			ids[i] = e.job.ID
		}
		own := job.And(job.IDIn(ids...), job.Claim(0), job.Attempts(0), job.Dead(false), job.Restart(false))
		deleted, err := r.delete(ctx, plain, func(jobs *ent.JobClient) *ent.JobDelete { return jobs.Delete().Where(own) })
		together = deleted && err == nil
	}
	for _, e := range batch {
		if together && slices.Contains(plain, e) {
			e.deleted = true
			continue
		}
		e.deleted, e.err = r.delete(ctx, []*end{e}, func(jobs *ent.JobClient) *ent.JobDelete {
			return jobs.Delete().Where(e.job.own(), job.Restart(false))
		})
	}
}

// delete deletes the rows of the jobs, inserts their parts and stores their results, all or nothing.
// It reports whether it found and deleted all rows.
func (r *jobRows) delete(ctx context.Context, batch []*end, rows func(*ent.JobClient) *ent.JobDelete) (deleted bool, err error) {
	var divided []*Job
	withResult := map[string][]*Job{} // by kind
	for _, e := range batch {
		if e.job.result != nil {
			withResult[e.job.Kind] = append(withResult[e.job.Kind], e.job)
		}
		if len(e.job.parts) > 0 {
			divided = append(divided, e.job)
		}
	}
	if len(batch) == 1 && len(withResult) == 0 && len(divided) == 0 {
		n, err := rows(r.db.Job).Exec(ctx)
		return n > 0, err
	}
	tx, err := r.db.Tx(ctx)
	if err != nil {
		return false, err
	}
	n, err := rows(tx.Job).Exec(ctx)
	if err != nil || n < len(batch) {
		return false, errors.Join(err, tx.Rollback())
	}
	for _, j := range divided {
		if err := r.insertParts(ctx, tx, j); err != nil {
			return false, errors.Join(err, tx.Rollback())
		}
	}
	for kind, jobs := range withResult {
		if err := r.whenDone[kind](ctx, tx, jobs); err != nil {
			return false, errors.Join(err, tx.Rollback())
		}
	}
	return true, tx.Commit()
}

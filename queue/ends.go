package queue

import (
	"context"
	"errors"
	"slices"

	"tideline/ent"
	"tideline/ent/job"
)

// maxEnds is how many jobs end in one transaction. Each number is a statement of its own
// to prepare.
const maxEnds = 16

// end is a job whose handler is done.
type end struct {
	job     *Job
	deleted bool // the row; otherwise it was not the attempt's own, or is to be done once more
	err     error
}

// end deletes the row of a job that is done, and stores its result, if the attempt has
// the claim to the job and it is not to be done once more. It reports whether it did.
func (w *worker) end(ctx context.Context, j *Job) (deleted bool, err error) {
	e := &end{job: j}
	w.ends.Do(e, maxEnds, func(batch []*end) { w.endAll(ctx, batch) })
	return e.deleted, e.err
}

// endAll ends the jobs of a batch: the plain first attempts in one transaction, if all of
// these have their claims, and the others one by one.
func (w *worker) endAll(ctx context.Context, batch []*end) {
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
		deleted, err := w.delete(ctx, plain, func(jobs *ent.JobClient) *ent.JobDelete { return jobs.Delete().Where(own) })
		together = deleted && err == nil
	}
	for _, e := range batch {
		if together && slices.Contains(plain, e) {
			e.deleted = true
			continue
		}
		e.deleted, e.err = w.delete(ctx, []*end{e}, func(jobs *ent.JobClient) *ent.JobDelete {
			return jobs.Delete().Where(e.job.own(), job.Restart(false))
		})
	}
}

// delete deletes the rows of the jobs and stores their results, all or nothing. It
// reports whether the deletion found all of them.
func (w *worker) delete(ctx context.Context, batch []*end, rows func(*ent.JobClient) *ent.JobDelete) (deleted bool, err error) {
	results := map[string][]any{}
	for _, e := range batch {
		if e.job.Result != nil && w.whenDone[e.job.Kind] != nil {
			results[e.job.Kind] = append(results[e.job.Kind], e.job.Result)
		}
	}
	if len(batch) == 1 && len(results) == 0 {
		n, err := rows(w.db.Job).Exec(ctx)
		return n > 0, err
	}
	tx, err := w.db.Tx(ctx)
	if err != nil {
		return false, err
	}
	n, err := rows(tx.Job).Exec(ctx)
	if err != nil || n < len(batch) {
		return false, errors.Join(err, tx.Rollback())
	}
	for kind, results := range results {
		if err := w.whenDone[kind](ctx, tx, results); err != nil {
			return false, errors.Join(err, tx.Rollback())
		}
	}
	return true, tx.Commit()
}

// freed are the entries of a job that leave the stream.
type freed struct {
	job     int64
	entries []string
	heir    string // an entry that stays, for another attempt, unless it is gone; "": none
	err     error
}

// release takes the entries of a job out of the stream, so that the job can be pushed
// again.
func (w *worker) release(ctx context.Context, f *freed) error {
	w.frees.Do(f, maxEnds, func(batch []*freed) {
		err := w.releaseAll(ctx, w.pool, batch)
		for _, f := range batch {
			f.err = err
		}
	})
	return f.err
}

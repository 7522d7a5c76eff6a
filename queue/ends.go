package queue

import (
	"context"
	"errors"
	"slices"
	"sync"

	"tideline/ent"
	"tideline/ent/job"
)

// maxEnds is how many jobs end in one transaction. Each number is a statement of its own
// to prepare.
const maxEnds = 16

// batcher lets one goroutine do what several ask for at the same time. Nobody waits for
// company: what comes while one batch is being done is the next.
type batcher[T any] struct {
	mu      sync.Mutex // guards waiting
	waiting []*request[T]
	doing   sync.Mutex // is held during a batch
}

type request[T any] struct {
	item  T
	taken bool // into a batch
}

// do returns when the item was in a batch.
func (b *batcher[T]) do(item T, work func([]T)) {
	r := &request[T]{item: item}
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	b.doing.Lock()
	defer b.doing.Unlock()
	for !r.taken {
		b.mu.Lock()
		var batch []T
		for _, next := range b.waiting[:min(len(b.waiting), maxEnds)] {
			next.taken = true
			batch = append(batch, next.item)
		}
		b.waiting = slices.Delete(b.waiting, 0, len(batch))
		b.mu.Unlock()
		work(batch)
	}
}

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
	w.ends.do(e, func(batch []*end) { w.endAll(ctx, batch) })
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
	err     error
}

// release takes the entries of a job out of the stream, so that the job can be pushed
// again.
func (w *worker) release(ctx context.Context, job int64, entries []string) error {
	f := &freed{job: job, entries: entries}
	w.frees.do(f, func(batch []*freed) {
		err := w.releaseAll(ctx, w.pool, batch)
		for _, f := range batch {
			f.err = err
		}
	})
	return f.err
}

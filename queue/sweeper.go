package queue

import (
	"context"
	"fmt"
	"math/rand/v2"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/internal/clock"
)

// sweepBatch is how many due rows the sweeper reads at a time.
const sweepBatch = 1000

// sweep pushes due rows to the streams until ctx ends: retries, and jobs that Redis has lost or
// never received.
func (q *Queue) sweep(ctx context.Context) {
	trouble := false
	// Every process sweeps, and the first leaves little for the others. The jitter keeps them from
	// sweeping at the same time.
	for clock.Sleep(ctx, q.cfg.SweepEvery*3/4+rand.N(q.cfg.SweepEvery/2)) == nil {
		err := q.sweepOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !trouble {
			q.log.WarnContext(ctx, "due jobs cannot be swept", "error", err)
		}
		trouble = err != nil
	}
}

// sweepOnce sweeps one batch. It continues while batches are full and most of their jobs were
// missing from the stream. A wiped Redis is thus refilled at full speed, while a long queue costs
// only one batch per period.
func (q *Queue) sweepOnce(ctx context.Context) error {
	for {
		found, added, err := q.sweepDue(ctx)
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		if found < sweepBatch || added <= found/2 {
			return nil
		}
	}
}

// sweepDue pushes the rows that have been due the longest and moves their due time on, so that the
// next batch finds other rows.
func (q *Queue) sweepDue(ctx context.Context) (found, added int, err error) {
	cut := q.now()
	rows, err := q.db.Job.Query().Where(job.Dead(false), job.DueAtLTE(cut)).
		Order(job.ByDueAt()).Limit(sweepBatch).Select(job.FieldID, job.FieldPool).All(ctx)
	if err != nil || len(rows) == 0 {
		return 0, 0, err
	}
	added, err = q.pushRows(ctx, rows)
	if err != nil {
		return 0, 0, err
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	// Only rows that are still due: a job that failed meanwhile has a new due time.
	err = q.db.Job.Update().Where(job.IDIn(ids...), job.DueAtLTE(cut)).
		SetDueAt(q.now().Add(q.cfg.Resweep)).Exec(ctx)
	return len(rows), added, err
}

// pushRows pushes rows to their streams, as entries with the id alone. It uses only the id and pool
// of each row.
func (q *Queue) pushRows(ctx context.Context, rows []*ent.Job) (added int, err error) {
	byPool := map[Pool][]entry{}
	for _, r := range rows {
		byPool[Pool(r.Pool)] = append(byPool[Pool(r.Pool)], entry{job: r.ID})
	}
	for p, entries := range byPool {
		n, err := q.streamOf(p).push(ctx, entries...)
		if err != nil {
			return added, err
		}
		added += n
	}
	return added, nil
}

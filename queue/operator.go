package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/predicate"
)

// Stats counts the jobs that are not finished, including running ones.
type Stats struct {
	Pools map[Pool]PoolStats // has every pool
	Dead  int                // jobs that wait for an operator
}

// PoolStats counts the unfinished jobs of one pool.
type PoolStats struct {
	Depth  int           // jobs that are not dead
	Oldest time.Duration // age of the oldest job in Depth, 0 if Depth is 0
}

// Stats counts the jobs in SQL.
//
// Cost: five queries by index, which grow with the number of jobs.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	s := Stats{Pools: map[Pool]PoolStats{}}
	for _, p := range pools {
		of := q.db.Job.Query().Where(job.Dead(false), job.Pool(string(p)))
		depth, err := of.Clone().Count(ctx)
		if err != nil {
			return Stats{}, fmt.Errorf("count jobs of pool %s: %w", p, err)
		}
		ps := PoolStats{Depth: depth}
		oldest, err := of.Order(job.ByCreatedAt()).Select(job.FieldCreatedAt).First(ctx)
		if err == nil {
			ps.Oldest = max(0, q.now().Sub(oldest.CreatedAt))
		} else if !ent.IsNotFound(err) {
			return Stats{}, fmt.Errorf("find oldest job of pool %s: %w", p, err)
		}
		s.Pools[p] = ps
	}
	var err error
	if s.Dead, err = q.db.Job.Query().Where(job.Dead(true)).Count(ctx); err != nil {
		return Stats{}, fmt.Errorf("count dead jobs: %w", err)
	}
	return s, nil
}

// KindStats counts the unfinished jobs of one kind in one pool.
type KindStats struct {
	Kind  string
	Pool  Pool
	Depth int // jobs that are not dead
	Tried int // jobs in Depth with at least one counted attempt
	Dead  int // jobs that wait for an operator
}

// StatsByKind counts the jobs in SQL by kind and pool, sorted by kind, then pool.
//
// Cost: one query that reads all jobs.
func (q *Queue) StatsByKind(ctx context.Context) (list []KindStats, err error) {
	found, err := q.db.QueryContext(ctx, `SELECT kind, pool, COUNT(CASE WHEN NOT dead THEN 1 END), COUNT(CASE WHEN NOT dead AND attempts > 0 THEN 1 END), COUNT(CASE WHEN dead THEN 1 END)
		FROM jobs GROUP BY kind, pool ORDER BY kind, pool`)
	if err != nil {
		return nil, fmt.Errorf("count jobs by kind: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var k KindStats
		if err := found.Scan(&k.Kind, &k.Pool, &k.Depth, &k.Tried, &k.Dead); err != nil {
			return nil, fmt.Errorf("count jobs by kind: %w", err)
		}
		list = append(list, k)
	}
	return list, errors.Join(found.Err(), found.Close())
}

// Oldest returns the time at which the oldest job of the kind that is not dead was enqueued. It
// returns the zero time if there is none.
//
// Cost: one query per pool, by index.
func (q *Queue) Oldest(ctx context.Context, kind string) (oldest time.Time, err error) {
	for _, p := range pools {
		first, err := q.db.Job.Query().Where(job.Dead(false), job.Pool(string(p)), job.Kind(kind)).
			Order(job.ByCreatedAt()).Select(job.FieldCreatedAt).First(ctx)
		switch {
		case ent.IsNotFound(err):
		case err != nil:
			return time.Time{}, fmt.Errorf("find oldest job of kind %s: %w", kind, err)
		case oldest.IsZero() || first.CreatedAt.Before(oldest):
			oldest = first.CreatedAt
		}
	}
	return oldest, nil
}

// ListOptions selects jobs. A zero field does not restrict the selection.
type ListOptions struct {
	Dead bool // only dead jobs
	// Post selects jobs whose payload names this post. It scans all jobs.
	Post  int64
	Kind  string
	After int64 // only larger ids; pass the last id of the previous page
	Limit int   // 1 to 1000; defaults to 100
}

// List returns jobs in ascending order of id.
//
// Cost: one query by primary key that reads the page; with filters, all rows that it passes over.
func (q *Queue) List(ctx context.Context, o ListOptions) ([]*ent.Job, error) {
	o.Limit = cmp.Or(o.Limit, 100)
	if o.Limit < 1 || o.Limit > 1000 {
		return nil, fmt.Errorf("list jobs: limit is %d: it must be 1 to 1000", o.Limit)
	}
	query := q.db.Job.Query().Where(job.IDGT(o.After)).Order(job.ByID()).Limit(o.Limit)
	if o.Dead {
		query.Where(job.Dead(true))
	}
	if o.Kind != "" {
		query.Where(job.Kind(o.Kind))
	}
	if o.Post != 0 {
		query.Where(payloadHas("post", o.Post))
	}
	rows, err := query.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return rows, nil
}

// payloadHas matches jobs whose payload has this number in this field.
func payloadHas(field string, number int64) predicate.Job {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			if b.Dialect() == dialect.Postgres {
				b.WriteString("payload @> ").Arg(fmt.Sprintf(`{"%s":%d}`, field, number))
			} else {
				b.WriteString("json_extract(payload, '$." + field + "') = ").Arg(number)
			}
		}))
	}
}

// DeadIDs returns the ids of all dead jobs, in ascending order.
//
// Cost: one query by index per 1,000 dead jobs.
func (q *Queue) DeadIDs(ctx context.Context) (ids []int64, err error) {
	for after := int64(0); ; after = ids[len(ids)-1] {
		jobs, err := q.List(ctx, ListOptions{Dead: true, After: after, Limit: 1000})
		if err != nil || len(jobs) == 0 {
			return ids, err
		}
		for _, job := range jobs {
			ids = append(ids, job.ID)
		}
	}
}

// Retry makes jobs due now, resets their attempts to 0 and revives dead ones. It returns the ids
// that exist, in ascending order. When the error is nil, the jobs are in their streams. If only
// Redis failed, the sweeper pushes them later.
//
// Cost: two statements per 1,000 jobs, and one round trip per 100.
func (q *Queue) Retry(ctx context.Context, ids ...int64) ([]int64, error) {
	var found []int64
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	for part := range slices.Chunk(ids, sweepBatch) {
		rows, err := q.db.Job.Query().Where(job.IDIn(part...)).Select(job.FieldID, job.FieldPool).Order(job.ByID()).All(ctx)
		if err != nil {
			return found, fmt.Errorf("retry jobs: %w", err)
		}
		err = q.db.Job.Update().Where(job.IDIn(part...)).
			SetDead(false).SetAttempts(0).SetDueAt(q.now()).Exec(ctx)
		if err != nil {
			return found, fmt.Errorf("retry jobs: %w", err)
		}
		for _, row := range rows {
			found = append(found, row.ID)
		}
		if _, err = q.pushRows(ctx, rows); err != nil {
			return found, fmt.Errorf("retry jobs: %w", err)
		}
	}
	return found, nil
}

// Wake makes the jobs whose last attempt was Unavailable due now and restarts their backoff. Call
// it when an external system may be reachable again. If an attempt that runs in this process ends
// as Unavailable, another attempt follows at once. Wake returns how many jobs waited. When the
// error is nil, the jobs are in their streams. If only Redis failed, the sweeper pushes them later.
//
// Cost: one scan of all jobs, two statements per 1,000 waiting jobs, and one round trip per 100.
func (q *Queue) Wake(ctx context.Context) (woken int, err error) {
	q.wakes.Add(1)
	return q.wake(ctx)
}

// wake wakes the waiting jobs whose rows match.
func (q *Queue) wake(ctx context.Context, match ...predicate.Job) (woken int, err error) {
	for after := int64(0); ; {
		rows, err := q.db.Job.Query().Where(job.Claim(waiting), job.Dead(false), job.IDGT(after)).Where(match...).
			Order(job.ByID()).Limit(sweepBatch).Select(job.FieldID, job.FieldPool).All(ctx)
		if err != nil {
			return woken, fmt.Errorf("wake jobs: %w", err)
		}
		if len(rows) == 0 {
			return woken, nil
		}
		ids := make([]int64, len(rows))
		for i, row := range rows {
			ids[i] = row.ID
		}
		err = q.db.Job.Update().Where(job.IDIn(ids...), job.Claim(waiting), job.Dead(false)).SetAttempts(0).SetDueAt(q.now()).Exec(ctx)
		if err != nil {
			return woken, fmt.Errorf("wake jobs: %w", err)
		}
		woken, after = woken+len(rows), ids[len(ids)-1]
		if _, err = q.pushRows(ctx, rows); err != nil {
			return woken, fmt.Errorf("wake jobs: %w", err)
		}
	}
}

// The errors of Discard. After each, nothing is discarded.
var (
	ErrNoJob   = errors.New("there is no such job: it is done, or never was")
	ErrNotDead = errors.New("the job is not given up, so it will be done")
	ErrNeeded  = errors.New("no other job does this work: fix the cause of its error, then retry it")
)

// Replacement returns the kind of the job that does the work of a dead job of this kind, or repairs
// its absence. It returns "" if nothing is left to do, and ok is false if no job can replace it.
type Replacement func(kind string) (then string, ok bool)

// Discard deletes dead jobs and enqueues their replacements in the same transaction, each kind
// once. It discards all of them or none. Errors: ErrNoJob, ErrNotDead and ErrNeeded, which name the
// job.
//
// Cost: one transaction of two statements, and one more statement for each kind that is enqueued.
func (q *Queue) Discard(ctx context.Context, replace Replacement, ids ...int64) (enqueued []string, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if len(ids) > sweepBatch {
		return nil, fmt.Errorf("discard %d jobs: they are %d at most at a time", len(ids), sweepBatch)
	}
	tx, err := q.db.Tx(ctx)
	if err != nil {
		return nil, fmt.Errorf("discard jobs: %w", err)
	}
	if enqueued, err = q.discard(ctx, tx, replace, ids); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("discard jobs: %w", err)
	}
	return enqueued, nil
}

func (q *Queue) discard(ctx context.Context, tx *ent.Tx, replace Replacement, ids []int64) (enqueued []string, err error) {
	rows, err := tx.Job.Query().Where(job.IDIn(ids...)).Select(job.FieldID, job.FieldKind, job.FieldDead).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("discard jobs: %w", err)
	}
	found := map[int64]*ent.Job{}
	for _, row := range rows {
		found[row.ID] = row
	}
	for _, id := range ids {
		row := found[id]
		if row == nil {
			return nil, fmt.Errorf("discard job %d: %w", id, ErrNoJob)
		}
		if !row.Dead {
			return nil, fmt.Errorf("discard job %d: %w", id, ErrNotDead)
		}
		then, ok := replace(row.Kind)
		if !ok {
			return nil, fmt.Errorf("discard job %d of kind %s: %w", id, row.Kind, ErrNeeded)
		}
		if then != "" && !slices.Contains(enqueued, then) {
			enqueued = append(enqueued, then)
		}
	}
	n, err := tx.Job.Delete().Where(job.IDIn(ids...), job.Dead(true)).Exec(ctx)
	if err != nil {
		return nil, fmt.Errorf("discard jobs: %w", err)
	}
	if n < len(ids) { // another operator retried or discarded a job since the query
		return nil, fmt.Errorf("discard %d jobs, of which only %d are still given up: %w", len(ids), n, ErrNotDead)
	}
	for _, then := range enqueued {
		if err := q.Enqueue(ctx, tx, Large, then, struct{}{}); err != nil {
			return nil, err
		}
	}
	return enqueued, nil
}

package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/internal/trace"
)

// Enqueue adds a job to tx: it exists when tx commits, and not otherwise. The commit pushes it to
// the workers before it returns, at best effort: Redis may be down. The payload is encoded as
// JSON. It must be small, as it waits in SQL and in Redis.
//
// Cost: one insert, and one round trip to Redis with the commit.
func (q *Queue) Enqueue(ctx context.Context, tx *ent.Tx, pool Pool, kind string, payload any) error {
	if !slices.Contains(pools, pool) {
		return fmt.Errorf("enqueue %s: unknown pool %q", kind, pool)
	}
	i, err := q.Prepare(ctx, kind, payload)
	if err != nil {
		return err
	}
	if pool == Small {
		q.priority.announce()
	}
	row, err := tx.Job.Create().SetPool(string(pool)).SetKind(kind).SetPayload(i.payload).
		SetCreatedAt(i.at).SetDueAt(i.due()).Save(ctx)
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", kind, err)
	}
	afterCommit(tx, func(ctx context.Context) { i.push(ctx, pool, row.ID) })
	return nil
}

// afterCommit has a commit of tx that succeeds end with do.
func afterCommit(tx *ent.Tx, do func(ctx context.Context)) {
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			err := next.Commit(ctx, tx)
			if err == nil {
				do(ctx)
			}
			return err
		})
	})
}

// Divide adds jobs to tx that do what j is for, in parts: one for each payload, of the kind and
// pool of j, and as old. Of StoreResults, they exist when j does not. The commit pushes them.
//
// Cost: one insert, and one round trip to Redis per 100 of them with the commit.
func (q *Queue) Divide(ctx context.Context, tx *ent.Tx, j *Job, payloads []json.RawMessage) error {
	at, due := j.CreatedAt.UTC(), q.now().Add(q.cfg.Lease)
	rows, err := tx.Job.MapCreateBulk(payloads, func(row *ent.JobCreate, i int) {
		row.SetKind(j.Kind).SetPool(string(j.Pool)).SetPayload(payloads[i]).SetCreatedAt(at).SetDueAt(due)
	}).Save(ctx)
	if err != nil {
		return fmt.Errorf("divide job %d: %w", j.ID, err)
	}
	entries := make([]entry, len(rows))
	for i, row := range rows {
		entries[i] = entry{job: row.ID, kind: j.Kind, payload: payloads[i], at: at.UnixMicro()}
	}
	afterCommit(tx, func(ctx context.Context) { _ = q.pushCommitted(ctx, j.Pool, entries...) })
	return nil
}

// Insertion is a job that a statement of the caller inserts, together with what the job follows
// from. It is for PostgreSQL, where one such statement takes the place of a transaction.
type Insertion struct {
	q       *Queue
	kind    string
	payload json.RawMessage
	at      time.Time
	span    *trace.Span // until the job is pushed
}

// Prepare begins to enqueue a job without a transaction: the caller makes SQL a part of
// a statement, and calls Committed when that has succeeded. The job goes on with the
// journey of ctx.
func (q *Queue) Prepare(ctx context.Context, kind string, payload any) (*Insertion, error) {
	if kind == "" {
		return nil, errors.New("enqueue: a job must have a kind")
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("enqueue %s: %w", kind, err)
	}
	ctx, span := trace.Send(ctx, "enqueue", kind)
	return &Insertion{q, kind, trace.Carry(ctx, raw), q.now(), span}, nil
}

func (i *Insertion) due() time.Time { return i.at.Add(i.q.cfg.Lease) }

// SQL returns an insert that returns the id and the pool of the job, and its arguments,
// the first of which has the number first. The insert takes one row from another part of
// the statement; pool is an expression on that.
func (i *Insertion) SQL(pool, from string, first int) (string, []any) {
	return fmt.Sprintf("INSERT INTO jobs (kind, pool, payload, attempts, last_error, claim, restart, dead, created_at, due_at)"+
		" SELECT $%d, %s, CAST($%d AS jsonb), 0, '', 0, false, false, CAST($%d AS timestamptz), CAST($%d AS timestamptz)"+
		" FROM %s RETURNING id, pool", first, pool, first+1, first+2, first+3, from), []any{i.kind, string(i.payload), i.at, i.due()}
}

// Committed pushes the job, whose statement has succeeded, to the workers, at best effort.
//
// Cost: one round trip to Redis.
func (i *Insertion) Committed(ctx context.Context, id int64, pool Pool) {
	if pool == Small {
		i.q.priority.announce()
	}
	i.push(ctx, pool, id)
}

// push pushes the job that exists now.
func (i *Insertion) push(ctx context.Context, pool Pool, id int64) {
	err := i.q.pushCommitted(ctx, pool, entry{job: id, kind: i.kind, payload: i.payload, at: i.at.UnixMicro()})
	i.span.Int("tideline.job", id)
	i.span.End(err)
}

// pushCommitted pushes jobs that exist now, even if the caller has given up.
func (q *Queue) pushCommitted(ctx context.Context, pool Pool, entries ...entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.PushTimeout)
	defer cancel()
	_, err := q.push(ctx, pool, entries...)
	if err != nil {
		q.log.WarnContext(ctx, "jobs are left to the sweeper", "job", entries[0].job, "jobs", len(entries), "kind", entries[0].kind, "error", err)
	}
	return err
}

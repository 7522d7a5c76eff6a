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

// Enqueue adds a job to tx. The job exists when tx commits, and not otherwise. The commit also
// pushes the job to the workers before it returns; if Redis fails, the sweeper pushes it later. The
// payload is encoded as JSON. Keep it small: SQL and Redis both store it.
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

// afterCommit makes tx call do after a successful commit.
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

// Insertion is a job that the caller inserts with its own statement, together with the change that
// causes the job. It needs PostgreSQL, where one such statement replaces a transaction.
type Insertion struct {
	q       *Queue
	kind    string
	payload json.RawMessage
	at      time.Time
	span    *trace.Span // until the job is pushed
}

// Prepare begins to enqueue a job without a transaction. The caller includes the text from SQL in a
// statement and calls Committed when the statement has succeeded. The job continues the trace of
// ctx.
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

// SQL returns an INSERT statement and its arguments, numbered from first. The statement inserts one
// job and returns its id and pool. from names another part of the caller's statement, which must
// have one row. pool is an SQL expression on that row.
func (i *Insertion) SQL(pool, from string, first int) (string, []any) {
	return fmt.Sprintf("INSERT INTO jobs (kind, pool, payload, attempts, last_error, claim, restart, dead, created_at, due_at)"+
		" SELECT $%d, %s, CAST($%d AS jsonb), 0, '', 0, false, false, CAST($%d AS timestamptz), CAST($%d AS timestamptz)"+
		" FROM %s RETURNING id, pool", first, pool, first+1, first+2, first+3, from), []any{i.kind, string(i.payload), i.at, i.due()}
}

// Committed pushes the job to the workers after its statement has succeeded. If Redis fails, the
// sweeper pushes it later.
//
// Cost: one round trip to Redis.
func (i *Insertion) Committed(ctx context.Context, id int64, pool Pool) {
	if pool == Small {
		i.q.priority.announce()
	}
	i.push(ctx, pool, id)
}

// push pushes the inserted job and ends its span.
func (i *Insertion) push(ctx context.Context, pool Pool, id int64) {
	err := i.q.pushCommitted(ctx, pool, entry{job: id, kind: i.kind, payload: i.payload, at: i.at.UnixMicro()})
	i.span.Int("tideline.job", id)
	i.span.End(err)
}

// pushCommitted pushes jobs whose rows are committed, even if the context of the caller has ended.
func (q *Queue) pushCommitted(ctx context.Context, pool Pool, entries ...entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.cfg.PushTimeout)
	defer cancel()
	_, err := q.streamOf(pool).push(ctx, entries...)
	if err != nil {
		q.log.WarnContext(ctx, "jobs are left to the sweeper", "job", entries[0].job, "jobs", len(entries), "kind", entries[0].kind, "error", err)
	}
	return err
}

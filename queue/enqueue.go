package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/trace"
)

// defaultPushTimeout bounds how long a commit waits for Redis. The sweeper finds a job
// that is not pushed by then.
const defaultPushTimeout = 250 * time.Millisecond

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
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			i.push(ctx, pool, row.ID)
			return nil
		})
	})
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

// push pushes the job that exists now, even if the caller has given up.
func (i *Insertion) push(ctx context.Context, pool Pool, id int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.q.pushTimeout)
	defer cancel()
	_, err := i.q.push(ctx, pool, entry{job: id, kind: i.kind, payload: i.payload, at: i.at.UnixMicro()})
	if err != nil {
		i.q.log.WarnContext(ctx, "job is left to the sweeper", "job", id, "kind", i.kind, "err", err)
	}
	i.span.Int("tideline.job", id)
	i.span.End(err)
}

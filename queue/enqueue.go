package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/internal/pipeline"
	"tideline/internal/trace"
)

// Enqueue adds a job to tx. The job exists when tx commits, and not otherwise. The commit also
// pushes the job to the workers before it returns; if Redis fails, the sweeper pushes it later. The
// payload is encoded as JSON. The job continues the trace of ctx. Keep the payload small: SQL and
// Redis both store it.
//
// Cost: one insert, and one round trip to Redis with the commit.
func (q *Queue) Enqueue(ctx context.Context, tx *ent.Tx, pool Pool, kind string, payload any) error {
	var insert pipeline.Pipeline
	if err := q.EnqueueWith(ctx, tx, &insert, pool, kind, payload); err != nil {
		return err
	}
	if err := insert.Send(ctx, tx); err != nil {
		return fmt.Errorf("enqueue %s: %w", kind, err)
	}
	return nil
}

// EnqueueWith is Enqueue for a transaction that sends the insert together with others: it adds the
// insert to w. The caller sends w before tx commits.
func (q *Queue) EnqueueWith(ctx context.Context, tx *ent.Tx, w *pipeline.Pipeline, pool Pool, kind string, payload any) error {
	traced, span := trace.Send(ctx, "enqueue", kind)
	at := q.now().UTC()
	e, err := q.entryOf(traced, pool, kind, payload, at)
	if err != nil {
		return err
	}
	w.QueryRow([]any{&e.job}, "INSERT INTO jobs (kind, pool, payload, created_at, due_at) VALUES ($1, $2, $3, $4, $5) RETURNING id",
		kind, string(pool), e.payload, at, at.Add(q.cfg.Lease))
	afterCommit(tx, func(ctx context.Context) {
		err := q.pushCommitted(ctx, pool, e)
		span.Int("tideline.job", e.job)
		span.End(err)
	})
	return nil
}

// EnqueueMany is Enqueue for a job of each of the payloads, at most a hundred.
//
// Cost: one insert of all, and one round trip to Redis with the commit.
func (q *Queue) EnqueueMany(ctx context.Context, tx *ent.Tx, pool Pool, kind string, payloads ...any) error {
	if len(payloads) == 0 {
		return nil
	}
	traced, span := trace.Send(ctx, "enqueue", kind)
	at := q.now().UTC()
	entries, inserts := make([]entry, len(payloads)), make([]*ent.JobCreate, len(payloads))
	for i, payload := range payloads {
		e, err := q.entryOf(traced, pool, kind, payload, at)
		if err != nil {
			return err
		}
		entries[i] = e
		inserts[i] = tx.Job.Create().SetKind(kind).SetPool(string(pool)).SetPayload(e.payload).SetCreatedAt(at).SetDueAt(at.Add(q.cfg.Lease))
	}
	list, err := tx.Job.CreateBulk(inserts...).Save(ctx)
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", kind, err)
	}
	for i, row := range list {
		entries[i].job = row.ID
	}
	afterCommit(tx, func(ctx context.Context) {
		err := q.pushCommitted(ctx, pool, entries...)
		span.Int("tideline.jobs", int64(len(entries)))
		span.End(err)
	})
	return nil
}

// entryOf returns the entry of a new job, which has no id yet.
func (q *Queue) entryOf(ctx context.Context, pool Pool, kind string, payload any, at time.Time) (entry, error) {
	if !slices.Contains(pools, pool) {
		return entry{}, fmt.Errorf("enqueue %s: unknown pool %q", kind, pool)
	}
	if kind == "" {
		return entry{}, errors.New("enqueue: a job must have a kind")
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return entry{}, fmt.Errorf("enqueue %s: %w", kind, err)
	}
	if pool == Small {
		q.priority.announce()
	}
	return entry{kind: kind, payload: trace.Carry(ctx, raw), at: at.UnixMicro()}, nil
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

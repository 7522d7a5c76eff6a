package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
)

// defaultPushTimeout bounds how long a commit waits for Redis. The sweeper finds a job
// that is not pushed by then.
const defaultPushTimeout = 250 * time.Millisecond

// Enqueue adds a job to tx: it exists when tx commits, and not otherwise. The
// commit pushes it to the workers before it returns, at best effort: Redis may be
// down. The payload is encoded as JSON. It must be small, as it waits in SQL and in
// Redis.
//
// Cost: one insert, and one round trip to Redis with the commit.
func (q *Queue) Enqueue(ctx context.Context, tx *ent.Tx, pool Pool, kind string, payload any) error {
	if !slices.Contains(pools, pool) {
		return fmt.Errorf("enqueue %s: unknown pool %q", kind, pool)
	}
	if kind == "" {
		return errors.New("enqueue: a job must have a kind")
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", kind, err)
	}
	if pool == Small {
		q.priority.announce()
	}
	at := q.now()
	row, err := tx.Job.Create().SetPool(string(pool)).SetKind(kind).SetPayload(raw).
		SetCreatedAt(at).SetDueAt(at.Add(q.cfg.Lease)).Save(ctx)
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", kind, err)
	}
	tx.OnCommit(func(next ent.Committer) ent.Committer {
		return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
			if err := next.Commit(ctx, tx); err != nil {
				return err
			}
			// The job exists now, even if the caller has given up.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.pushTimeout)
			defer cancel()
			_, err := q.push(ctx, pool, entry{job: row.ID, kind: kind, payload: raw, at: at.UnixMicro()})
			if err != nil {
				q.log.WarnContext(ctx, "job is left to the sweeper", "job", row.ID, "kind", kind, "err", err)
			}
			return nil
		})
	})
	return nil
}

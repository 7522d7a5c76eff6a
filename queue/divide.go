package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/internal/trace"
)

// partOf is the field of a part's payload that holds the id of the divided job.
const partOf = "partOf"

// Divide prepares j to be replaced by parts: one job for each payload, with the kind, pool and
// creation time of j. The handler of j calls it. If the handler then returns nil, and its attempt still
// has the claim, the transaction that ends j deletes j and inserts all parts. After the commit, the
// parts are pushed to Redis. Otherwise no parts are inserted.
//
// A payload must be encoded as a JSON object with at least one field, because Divide inserts its own
// field before it.
//
// Cost: none by itself. The end of j costs one more insert, and one round trip to Redis per 100 parts.
func Divide[P any](ctx context.Context, j *Job, payloads []P) error {
	j.parts = make([]json.RawMessage, len(payloads))
	for i, p := range payloads {
		raw, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("divide job %d: %w", j.ID, err)
		}
		// The first byte of raw is the brace. An object without fields would leave a comma before the
		// closing brace.
		raw = append(fmt.Appendf(nil, `{"%s":%d,`, partOf, j.ID), raw[1:]...)
		j.parts[i] = trace.Carry(ctx, raw)
	}
	return nil
}

// insertParts inserts the parts of j in tx, which also deletes j, and pushes them after the commit.
func (q *Queue) insertParts(ctx context.Context, tx *ent.Tx, j *Job) error {
	at, due := j.CreatedAt.UTC(), q.now().Add(q.cfg.Lease)
	rows, err := tx.Job.MapCreateBulk(j.parts, func(row *ent.JobCreate, i int) {
		row.SetKind(j.Kind).SetPool(string(j.Pool)).SetPayload(j.parts[i]).SetCreatedAt(at).SetDueAt(due)
	}).Save(ctx)
	if err != nil {
		return fmt.Errorf("divide job %d: %w", j.ID, err)
	}
	entries := make([]entry, len(rows))
	for i, row := range rows {
		entries[i] = entry{job: row.ID, kind: j.Kind, payload: j.parts[i], at: at.UnixMicro()}
	}
	afterCommit(tx, func(ctx context.Context) { _ = q.pushCommitted(ctx, j.Pool, entries...) })
	return nil
}

// PartsLeft returns the number of parts that still exist, including dead parts, of the divided job
// that j is a part of. In the transaction that ends j, the number does not include j.
//
// Cost: one query by index, which reads the jobs of the pool with the same creation time.
func (q *Queue) PartsLeft(ctx context.Context, tx *ent.Tx, j *Job) (left int, err error) {
	var part struct{ PartOf int64 }
	if err := json.Unmarshal(j.Payload, &part); err != nil {
		return 0, fmt.Errorf("count the parts of a job: %w", err)
	}
	// The condition names both values of dead because the index begins with that column.
	left, err = tx.Job.Query().Where(job.Or(job.Dead(false), job.Dead(true)), job.Pool(string(j.Pool)), job.CreatedAt(j.CreatedAt.UTC()),
		payloadHas(partOf, part.PartOf)).Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the parts of job %d: %w", part.PartOf, err)
	}
	return left, nil
}

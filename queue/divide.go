package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/internal/trace"
)

// partOf is the field of a part's payload that has the id of the divided job.
const partOf = "partOf"

// Divide makes the end of j replace it by one job per payload, with the kind, pool and creation
// time of j. Call it from the handler. If the handler returns nil and the attempt has its claim,
// one transaction deletes j and inserts all parts; otherwise there are no parts. The commit pushes
// them. A payload is encoded as a JSON object and must have at least one field.
//
// Cost: one insert, and one round trip to Redis per 100 jobs with the commit.
func Divide[P any](ctx context.Context, j *Job, payloads []P) error {
	j.parts = make([]json.RawMessage, len(payloads))
	for i, p := range payloads {
		raw, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("divide job %d: %w", j.ID, err)
		}
		raw = append(fmt.Appendf(nil, `{"%s":%d,`, partOf, j.ID), raw[1:]...)
		j.parts[i] = trace.Carry(ctx, raw)
	}
	return nil
}

// insertParts inserts the parts of j with tx, which deletes j.
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

// PartsLeft returns how many parts of a divided job are not done, including dead ones. j is one of
// the parts. In the transaction that ends j, it does not count j.
//
// Cost: one query by index, which reads the jobs of the pool with the same creation time.
func (q *Queue) PartsLeft(ctx context.Context, tx *ent.Tx, j *Job) (left int, err error) {
	var part struct{ PartOf int64 }
	if err := json.Unmarshal(j.Payload, &part); err != nil {
		return 0, fmt.Errorf("count the parts of a job: %w", err)
	}
	// Both values of dead are named because the index begins with that column.
	left, err = tx.Job.Query().Where(job.Or(job.Dead(false), job.Dead(true)), job.Pool(string(j.Pool)), job.CreatedAt(j.CreatedAt.UTC()),
		payloadHas(partOf, part.PartOf)).Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the parts of job %d: %w", part.PartOf, err)
	}
	return left, nil
}

package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// Jobs that end together are stored in one transaction. A job whose claim is lost, or whose result
// cannot be stored, does not affect the others.
func TestJobsEndTogether(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		q := newQueue(t, s, pushOnly())
		refused := errors.New("refused")
		var stored []string
		refuse := ""
		HandleResult(q, "k", nil, func(ctx context.Context, tx *ent.Tx, results []*string) error {
			var texts []string
			for _, r := range results {
				if *r == refuse {
					return refused
				}
				texts = append(texts, *r)
			}
			tx.OnCommit(func(next ent.Committer) ent.Committer {
				return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
					stored = append(stored, texts...)
					return next.Commit(ctx, tx)
				})
			})
			return nil
		})
		w := newWorker(q, Small, 1)
		hand := func(results ...string) []*end {
			var payloads []any
			for range results {
				payloads = append(payloads, "p")
			}
			enqueue(t, q, Small, "k", payloads...)
			rows := s.DB.Job.Query().Order(ent.Asc(job.FieldID)).AllX(t.Context())
			require.Len(t, rows, len(results))
			batch := make([]*end, len(rows))
			for i, row := range rows {
				j, err := w.rows.load(t.Context(), entry{job: row.ID, kind: "k"})
				require.NoError(t, err)
				if results[i] != "" {
					j.result = &results[i]
				}
				batch[i] = &end{job: j}
			}
			return batch
		}
		left := func() int { return s.DB.Job.Query().CountX(t.Context()) }

		batch := hand("a", "", "c")
		count := storagetest.CountQueries(s)
		w.rows.endAll(t.Context(), batch)
		require.Equal(t, 1, count())
		require.Zero(t, left())
		require.Equal(t, []string{"a", "c"}, stored)
		for _, e := range batch {
			require.NoError(t, e.err)
			require.True(t, e.deleted)
		}

		stored = nil
		batch = hand("a", "b", "c", "d")
		s.DB.Job.UpdateOneID(batch[1].job.ID).SetClaim(newName()).SetAttempts(1).ExecX(t.Context()) // as its successor does
		s.DB.Job.UpdateOneID(batch[2].job.ID).SetRestart(true).ExecX(t.Context())
		w.rows.endAll(t.Context(), batch)
		require.Equal(t, []string{"a", "d"}, stored)
		for i, e := range batch {
			require.NoError(t, e.err)
			require.Equal(t, i == 0 || i == 3, e.deleted)
		}
		require.Equal(t, 2, left())
		s.DB.Job.Delete().ExecX(t.Context())

		stored, refuse = nil, "b"
		batch = hand("a", "b", "c")
		w.rows.endAll(t.Context(), batch)
		require.Equal(t, []string{"a", "c"}, stored)
		require.ErrorIs(t, batch[1].err, refused)
		require.Equal(t, 1, left(), "its row stays, and the attempt keeps its claim")
		refuse = ""
		deleted, err := w.rows.end(t.Context(), batch[1].job)
		require.NoError(t, err)
		require.True(t, deleted)
		require.Equal(t, []string{"a", "c", "b"}, stored)
		require.Zero(t, left())
	})
}

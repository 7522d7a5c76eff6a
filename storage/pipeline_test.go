package storage_test

import (
	"testing"
	"time"

	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/stretchr/testify/require"

	"tideline/internal/pipeline"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// A pipeline is a part of its transaction. It begins and commits the transaction on PostgreSQL, and
// a statement that fails undoes it.
func TestPipelineBeginsAndCommitsItsTransaction(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const add = "INSERT INTO idempotency_keys (user_id, key, post_id, created_at) VALUES ($1, $2, 3, $3) RETURNING id"
		now := time.Now()
		count := func() int { return s.DB.IdempotencyKey.Query().CountX(t.Context()) }

		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		var first, none int64 = 0, 7
		p := pipeline.Pipeline{Dialect: s.Dialect}
		p.QueryRow([]any{&first}, add, 1, "one", now)
		p.QueryRow([]any{&none}, "UPDATE users SET name = 'x' WHERE id = $1 RETURNING id", int64(0))
		require.NoError(t, p.Send(t.Context(), tx))
		require.NotZero(t, first)
		require.EqualValues(t, 7, none, "there is no such row")
		require.NoError(t, tx.Rollback())
		require.Zero(t, count())

		tx, err = s.DB.Tx(t.Context())
		require.NoError(t, err)
		p = pipeline.Pipeline{Dialect: s.Dialect, Commit: true}
		p.Exec(add, 1, "one", now)
		p.Exec(add, 1, "one", now)
		require.True(t, sqlgraph.IsUniqueConstraintError(p.Send(t.Context(), tx)))
		require.NoError(t, tx.Rollback())
		require.Zero(t, count())

		tx, err = s.DB.Tx(t.Context())
		require.NoError(t, err)
		p = pipeline.Pipeline{Dialect: s.Dialect, Commit: true}
		p.Exec(add, 1, "one", now)
		p.Exec(add, 1, "two", now)
		require.NoError(t, p.Send(t.Context(), tx))
		require.NoError(t, tx.Commit())
		require.Equal(t, 2, count())
	})
}

// A transaction begins with its first statement, of whatever kind.
func TestTransactionBeginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		ann, err := s.DB.User.Create().SetID(1).SetHandle("ann").SetName("Ann").SetPasswordHash("-").Save(t.Context())
		require.NoError(t, err)
		for name, first := range map[string]func(tx pipeline.Tx) error{
			"nothing": func(pipeline.Tx) error { return nil },
			"a query": func(tx pipeline.Tx) error {
				found, err := tx.QueryContext(t.Context(), "UPDATE users SET name = 'x' RETURNING id")
				if err != nil {
					return err
				}
				defer func() { require.NoError(t, found.Close()) }()
				return found.Err()
			},
			"a statement": func(tx pipeline.Tx) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE users SET name = 'x'")
				return err
			},
			"a statement with an argument": func(tx pipeline.Tx) error {
				done, err := tx.ExecContext(t.Context(), "UPDATE users SET name = $1", "x")
				if err != nil {
					return err
				}
				changed, err := done.RowsAffected()
				require.EqualValues(t, 1, changed)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				tx, err := s.DB.Tx(t.Context())
				require.NoError(t, err)
				require.NoError(t, first(tx))
				require.NoError(t, tx.Rollback())
				require.Equal(t, "Ann", s.DB.User.GetX(t.Context(), ann.ID).Name)
			})
		}
	})
}

package rows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// A transaction is over however it ends: none of its changes stay, and the next transaction can
// begin.
func TestATransactionEndsAlsoInAPanic(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel() // also ends a transaction that would go on
		add := func(then func() error) error {
			return rows.InTx(ctx, s.DB, func(tx *ent.Tx) error {
				err := tx.User.Create().SetID(1).SetHandle("ann").SetName("Ann").SetPasswordHash("-").Exec(ctx)
				if err != nil {
					return err
				}
				return then()
			})
		}
		broken := errors.New("broken")
		require.Equal(t, broken, add(func() error { return broken }))
		require.PanicsWithValue(t, broken, func() { _ = add(func() error { panic(broken) }) })
		require.NoError(t, add(func() error { return nil }))
	})
}

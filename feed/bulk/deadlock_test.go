package bulk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/internal/rows"
	"tideline/storage/storagetest"
)

// Rows that another transaction locks in another order are written when that is done:
// PostgreSQL undoes one of the two, and the call tries again.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Real(t), feedtest.Options{})
	users := upsertUsers(w, app, "1", "2")
	const lock = "SELECT 1 FROM users WHERE id = $1 FOR NO KEY UPDATE"
	for undone := false; !undone; {
		other, err := w.Stores.SQL.BeginTx(w.Ctx, nil)
		require.NoError(t, err)
		_, err = other.ExecContext(w.Ctx, lock, users[1].ID)
		require.NoError(t, err)
		done := make(chan error, 1)
		var results []*bulk.Result
		go func() {
			var err error
			name := text(t.Name())
			results, err = w.Bulk.Users(w.Ctx, app, []bulk.User{{ExternalID: "1", Name: name}, {ExternalID: "2", Name: name}})
			done <- err
		}()
		// It has locked the first user, and waits for the second.
		require.Eventually(t, func() bool {
			var waiting int
			err := w.Stores.SQL.QueryRowContext(w.Ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waiting)
			return err == nil && waiting > 0
		}, time.Minute, 2*time.Millisecond)
		_, err = other.ExecContext(w.Ctx, lock, users[0].ID)
		// Who waited longer is undone: the call, unless the machine was busy for a second.
		require.True(t, err == nil || rows.Undone(err), "%v", err)
		undone = err == nil
		require.NoError(t, other.Rollback())
		require.NoError(t, <-done)
		require.Equal(t, "UPDATED UPDATED", statuses(results))
		require.Equal(t, t.Name(), w.Stores.DB.User.GetX(w.Ctx, users[1].ID).Name)
		w.Stores.DB.User.Update().SetName("").ExecX(w.Ctx)
	}
}

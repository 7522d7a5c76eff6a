package bulk_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/storage/storagetest"
)

// Rows that another transaction locks in another order are written once that transaction ends:
// PostgreSQL undoes one of the two, and the call tries again.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Real(t), feedtest.Options{})
	users := upsertUsers(w, app, "1", "2")
	const lock = "SELECT 1 FROM users WHERE id = %d FOR NO KEY UPDATE"
	for undone := false; !undone; {
		var results []*bulk.Result
		undone = w.InCircle(t, fmt.Sprintf(lock, users[1].ID), fmt.Sprintf(lock, users[0].ID), func() error {
			var err error
			name := text(t.Name())
			results, err = w.Bulk.Users(w.Ctx, app, []bulk.User{{ExternalID: "1", Name: name}, {ExternalID: "2", Name: name}})
			return err
		})
		require.Equal(t, "UPDATED UPDATED", statuses(results))
		require.Equal(t, t.Name(), w.Stores.DB.User.GetX(w.Ctx, users[1].ID).Name)
		w.Stores.DB.User.Update().SetName("").ExecX(w.Ctx)
	}
}

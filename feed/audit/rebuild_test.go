package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
)

// Rebuild does not say that it has built an inbox that it could not build.
func TestAFailedRebuildIsNotABuild(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		w.AwaitInbox(ann)
		_, err := w.Stores.SQL.ExecContext(w.Ctx, "ALTER TABLE follows RENAME TO away")
		require.NoError(w, err)
		active, err := w.Audit.Rebuild(w.Ctx, ann.ID)
		require.Error(w, err)
		require.False(w, active)
		_, err = w.Stores.SQL.ExecContext(w.Ctx, "ALTER TABLE away RENAME TO follows")
		require.NoError(w, err)
		active, err = w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.True(w, active)
	})
}

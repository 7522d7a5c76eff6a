package feedtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/internal/rows"
)

// InCircle creates a deadlock on PostgreSQL between write and another transaction. The other
// transaction executes first, write waits for its lock, and then the other transaction executes
// second, which must need a lock that write holds. InCircle reports whether PostgreSQL aborted
// write: it aborts the transaction that waited longer, which is write unless the machine was busy
// for a second. The write must succeed in either case.
func (w *World) InCircle(t *testing.T, first, second string, write func() error) (undone bool) {
	t.Helper()
	other, err := w.Stores.SQL.BeginTx(w.Ctx, nil)
	require.NoError(t, err)
	_, err = other.ExecContext(w.Ctx, first)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- write() }()
	require.Eventually(t, func() bool {
		var waiting int
		err := w.Stores.SQL.QueryRowContext(w.Ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waiting)
		return err == nil && waiting > 0
	}, time.Minute, 2*time.Millisecond)
	_, err = other.ExecContext(w.Ctx, second)
	require.True(t, err == nil || rows.Undone(err), "%v", err)
	require.NoError(t, other.Rollback())
	require.NoError(t, <-done)
	return err == nil
}

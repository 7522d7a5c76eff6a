package feedtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/internal/rows"
)

// InCircle has a write wait in a circle with another transaction on PostgreSQL. The other
// one executes first, write waits for that, and then the other one executes second, for
// which it must need a lock that write has. InCircle reports whether PostgreSQL undid the
// write: it undoes the transaction that waited longer, which is the write unless the machine
// was busy for a second. The write must succeed in either case.
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

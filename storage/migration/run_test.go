package migration_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/migration"
	"tideline/storage/storagetest"
)

// journal is the writer of a log. It also sends each line to the channel lines.
type journal struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan string
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	j.text.Write(line)
	j.mu.Unlock()
	select {
	case j.lines <- string(line):
	default: // the buffer is full
	}
	return len(line), nil
}

func (j *journal) until(t *testing.T, part string) string {
	t.Helper()
	for {
		select {
		case line := <-j.lines:
			if strings.Contains(line, part) {
				return line
			}
		case <-time.After(time.Minute):
			require.Fail(t, "the log does not say it", part)
		}
	}
}

// lacking returns a PostgreSQL database that lacks one column, whose migration runs in a
// transaction.
func lacking(t *testing.T, log *slog.Logger) *storage.Stores {
	t.Helper()
	cfg := storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.PostgresURL(t)}
	s, err := storage.Open(t.Context(), cfg, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, statement := range []string{"ALTER TABLE users DROP COLUMN fixture", fmt.Sprintf("DELETE FROM goose_db_version WHERE version_id = %d", addColumn)} {
		_, err := s.SQL.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	return s
}

// While a transaction keeps a migration from its lock, other statements queue behind the migration
// for at most the timeout. The migration is applied when the transaction has ended.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	j := &journal{lines: make(chan string, 1000)}
	s := lacking(t, slog.New(slog.NewTextHandler(j, nil)))
	tx, err := s.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE users SET handle = handle WHERE false; SELECT 1 FROM users WHERE false")
	require.NoError(t, err)

	done := make(chan error, 1)
	go func() {
		applied, err := s.Apply(t.Context(), migration.Options{LockTimeout: 50 * time.Millisecond})
		if err == nil && len(applied) != 1 {
			err = context.Canceled
		}
		done <- err
	}()
	line := j.until(t, "gives way")
	require.Contains(t, line, fmt.Sprint("version=", addColumn))
	require.Contains(t, line, "has a lock on users")
	_, err = s.SQL.ExecContext(t.Context(), "UPDATE users SET handle = handle WHERE false")
	require.NoError(t, err, "others go on")
	j.until(t, "gives way")
	require.NoError(t, tx.Commit())
	require.NoError(t, <-done)
	plan, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Empty(t, plan.Pending)
}

// A migration that cannot get its lock fails, and names the process that holds the lock.
func TestMigrationNamesWhoKeepsItsLock(t *testing.T) {
	t.Parallel()
	s := lacking(t, slog.New(slog.DiscardHandler))
	tx, err := s.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), "SELECT 1 FROM users WHERE false")
	require.NoError(t, err)
	applied, err := s.Apply(t.Context(), migration.Options{LockTimeout: 10 * time.Millisecond, Patience: time.Millisecond})
	require.ErrorContains(t, err, "20990101000001_fixture-column was not to have its locks, and has changed nothing: process ")
	require.ErrorContains(t, err, "tideline, idle in transaction")
	require.ErrorContains(t, err, "lock on users")
	require.Empty(t, applied)
	plan, err := s.Pending(t.Context())
	require.NoError(t, err)
	require.Len(t, plan.Pending, 1)
}

// An index whose build was interrupted is built again.
func TestInterruptedIndexIsBuiltAnew(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.PostgresURL(t)})
	back(t, s)
	// A transaction that has seen the table keeps the index from being finished.
	tx, err := s.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE users SET handle = handle WHERE false")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Migrate(ctx) }()
	valid := func() (n int, ok bool) {
		require.NoError(t, s.SQL.QueryRowContext(t.Context(),
			"SELECT count(*), coalesce(bool_and(indisvalid), false) FROM pg_index WHERE indexrelid = to_regclass('user_fixture')").Scan(&n, &ok))
		return n, ok
	}
	require.Eventually(t, func() bool { n, _ := valid(); return n == 1 }, time.Minute, 5*time.Millisecond)
	cancel()
	require.Error(t, <-done)
	require.Eventually(t, func() bool { // PostgreSQL has heard of the end
		var busy int
		require.NoError(t, s.SQL.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()").Scan(&busy))
		return busy == 0
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, tx.Commit())
	_, ok := valid()
	require.False(t, ok, "half an index is left")

	require.NoError(t, s.Migrate(t.Context()))
	n, ok := valid()
	require.Equal(t, 1, n)
	require.True(t, ok)
	plan, err := migration.Lacks(t.Context(), s.SQL, dialect.Postgres)
	require.NoError(t, err)
	require.Empty(t, plan.Of(migration.Expand))
}

package storage_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// A backup contains everything that was written before it began, and a prefix of what is written
// meanwhile. It is not corrupt.
func TestBackupIsOfOneMoment(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	for id := range int64(100) {
		addUser(t, s, id+1)
	}
	stop, began, stopped := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		for id := int64(101); ; id++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := createUser(context.WithoutCancel(t.Context()), s.DB.User, id); err != nil {
				stopped <- err
				return
			}
			if id == 101 {
				close(began)
			}
		}
	}()
	<-began
	dir := t.TempDir()
	path := filepath.Join(dir, "copy")
	err := s.Backup(t.Context(), path)
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, err)
	require.Error(t, s.Backup(t.Context(), path), "it is there already")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	restored := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: "sqlite://" + path})
	pending, err := restored.Pending(t.Context())
	require.NoError(t, err)
	require.Empty(t, pending.Pending)
	var well string
	require.NoError(t, restored.SQL.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&well))
	require.Equal(t, "ok", well)
	n, err := restored.DB.User.Query().Count(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 101)
	last, err := restored.DB.User.Get(t.Context(), int64(n))
	require.NoError(t, err, "the first so many, without a hole")
	require.EqualValues(t, n, last.ID)
}

func TestPostgresIsBackedUpByItsOwnTools(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "copy")
	require.ErrorIs(t, storagetest.Real(t).Backup(t.Context(), path), storage.ErrOwnTools)
	require.NoFileExists(t, path)
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"entgo.io/ent/dialect"
)

// ErrOwnTools means that PostgreSQL must be backed up with its own tools.
var ErrOwnTools = errors.New("PostgreSQL is backed up by its own tools, such as pg_dump")

// Backup writes a consistent snapshot of the SQLite file to a new file that only its owner can
// read, while other connections read and write. The new file appears only when it is complete and
// on disk. Errors: ErrOwnTools; path exists already; the disk is full.
//
// Cost: reads and writes the whole file once. Readers and writers continue; their writes stay in
// the write-ahead log until the end.
func (s *Stores) Backup(ctx context.Context, path string) (err error) {
	if s.Dialect != dialect.SQLite {
		return ErrOwnTools
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup: %s is there already", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".tideline-backup-") // readable by its owner only
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	copied := filepath.Join(dir, databaseName)
	if _, err := s.SQL.ExecContext(ctx, "VACUUM INTO ?", copied); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Chmod(copied, 0o600); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := onDisk(copied); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	if err := os.Rename(copied, path); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// onDisk waits until the file is on disk.
func onDisk(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

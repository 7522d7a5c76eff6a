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

// ErrOwnTools says that PostgreSQL is backed up by its own tools.
var ErrOwnTools = errors.New("PostgreSQL is backed up by its own tools, such as pg_dump")

// Backup writes the SQLite file, as it is at one moment, to a new file that only its
// owner can read, while others read and write it. The file is there when it is whole and
// the disk has it, or not at all. Errors: ErrOwnTools; there is such a file already; the
// disk is full.
//
// Cost: reads and writes the whole file once. Readers and writers go on; what they write
// meanwhile stays in the write-ahead log until the end.
func (s *Stores) Backup(ctx context.Context, path string) (err error) {
	if s.Dialect != dialect.SQLite {
		return ErrOwnTools
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("backup: %s is there already", path)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".tideline-backup-") // which only its owner can read
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

// onDisk waits until the disk has the file.
func onDisk(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

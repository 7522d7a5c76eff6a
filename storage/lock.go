package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// claim makes the process the only owner of the lock file at path until the
// returned file is closed or the process ends, however it ends. The file itself
// stays behind and means nothing.
func claim(path string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder := ""
		if pid, err := os.ReadFile(path); err == nil && len(pid) > 0 {
			holder = " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		_ = f.Close()
		return nil, fmt.Errorf("the data directory %s is in use by another Tideline%s: stop it, use another data "+
			"directory, or set a Redis URL: processes can share a Redis server, not one inside a process",
			filepath.Dir(path), holder)
	}
	if err == nil {
		err = writePID(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// await is claim for short work: it waits for the present owner to finish.
func await(ctx context.Context, path string) (*os.File, error) {
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, ctx.Err())
		}
	}
}

func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return f, nil
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

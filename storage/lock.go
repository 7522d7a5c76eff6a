package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockRetry is how often a process that waits for a lock file tries again.
const lockRetry = 50 * time.Millisecond

// takeLock makes the process the only owner of the lock file at path until the
// lock is closed or the process ends, however it ends. It does not wait. The
// file stays behind and means nothing without its lock.
func takeLock(path string) (*flock.Flock, error) {
	lock := flock.New(path)
	taken, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !taken {
		owner := ""
		if pid, err := os.ReadFile(path); err == nil && len(pid) > 0 {
			owner = " (process " + strings.TrimSpace(string(pid)) + ")"
		}
		return nil, &inUse{filepath.Dir(path), owner}
	}
	// The process id is a hint for the message above. Windows refuses to write into
	// a locked file: the message then goes without.
	_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	return lock, nil
}

// awaitLock is takeLock for short work: it waits until the present owner is done
// or ctx ends.
func awaitLock(ctx context.Context, path string) (*flock.Flock, error) {
	lock := flock.New(path)
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("wait for the lock %s: %w", path, err)
	}
	return lock, nil
}

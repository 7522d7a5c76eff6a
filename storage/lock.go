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

// takeLock makes this process the only owner of the lock file at path, until the lock is closed or
// the process ends in any way. It does not wait. The file remains afterwards, but only the lock on
// it has a meaning.
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
	// The process id is a hint for the message above. Windows cannot write to a locked file, so its
	// message has no process id.
	_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	return lock, nil
}

// awaitLock is takeLock for short work: it waits until the present owner releases the lock or ctx
// ends.
func awaitLock(ctx context.Context, path string) (*flock.Flock, error) {
	lock := flock.New(path)
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return nil, fmt.Errorf("wait for the lock %s: %w", path, err)
	}
	return lock, nil
}

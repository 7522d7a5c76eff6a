//go:build unix

package machine

import "syscall"

// OpenFiles is how many files this process may have open. Go raises the bound as far
// as it may when a program starts.
func OpenFiles() (most uint64, known bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // it is signed on some systems
}

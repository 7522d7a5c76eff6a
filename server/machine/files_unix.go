//go:build unix

package machine

import "syscall"

// OpenFiles returns how many files this process may have open. Go raises the soft limit to the hard
// limit when a program starts.
func OpenFiles() (most uint64, known bool) {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0, false
	}
	return uint64(limit.Cur), true //nolint:unconvert // it is signed on some systems
}

//go:build unix

package storagetest

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asUser returns attributes that start a program as another user.
func asUser(uid, gid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// The signals that suspend and resume a process.
const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)

// ProcessorTime returns the processor time that this process has used.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

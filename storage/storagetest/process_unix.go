//go:build unix

package storagetest

import "syscall"

// asUser returns attributes that start a program as another user.
func asUser(uid, gid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// The signals that suspend and resume a process.
const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)

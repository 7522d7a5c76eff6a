//go:build unix

package storagetest

import "syscall"

// asUser starts a program as another user.
func asUser(uid, gid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
}

// The signals that stop a process in its tracks and let it go on.
const (
	freeze = syscall.SIGSTOP
	thaw   = syscall.SIGCONT
)

package storagetest

import "syscall"

// dieWithParent makes the kernel send sig to the process when the thread that
// started it ends. The process has a group of its own: when the shell of a test ends,
// the kernel hangs up on all processes of a group in which one is stopped.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig, attr.Setpgid = sig, true
}

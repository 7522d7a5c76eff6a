package storagetest

import "syscall"

// dieWithParent makes the kernel send sig to the process when the thread that started it ends. The
// process gets its own process group: when the shell of a test ends, the kernel sends SIGHUP to all
// processes of a group that contains a stopped one.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig, attr.Setpgid = sig, true
}

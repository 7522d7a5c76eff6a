package storagetest

import "syscall"

// asUser changes nothing: PostgreSQL refuses to run as root, which Windows does not have.
func asUser(uint32, uint32) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// Windows has no signal that suspends a process. These do nothing.
const freeze, thaw = syscall.Signal(0), syscall.Signal(0)

//go:build !linux

package storagetest

import "syscall"

// dieWithParent does nothing, because only Linux supports it. The servers of a killed test binary
// must be stopped by hand.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

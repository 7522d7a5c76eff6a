//go:build !linux

package storagetest

import "syscall"

// dieWithParent does nothing here: only Linux offers it. The servers of a killed
// test binary have to be stopped by hand.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

//go:build !linux

package storage

import "syscall"

// endSilence does nothing here: keep-alive ends idle connections, and deadlines end the rest.
func endSilence(_, _ string, _ syscall.RawConn) error { return nil }

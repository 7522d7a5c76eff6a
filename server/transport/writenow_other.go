//go:build !unix

package transport

import "syscall"

// writeOnce writes nothing, so the frame is queued.
func writeOnce(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }

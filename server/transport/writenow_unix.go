//go:build unix

package transport

import "syscall"

// writeOnce writes to a non-blocking descriptor.
func writeOnce(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), b)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

package storage

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not define on every architecture.
const tcpUserTimeout = 18

// endSilence makes a new TCP connection end when data that it has sent stays unacknowledged for the
// duration silence.
func endSilence(network, _ string, conn syscall.RawConn) (err error) {
	if network[:3] != "tcp" {
		return nil
	}
	failed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(silence.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}

package storage

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not have everywhere.
const tcpUserTimeout = 18

// endSilence ends a TCP connection that is to be opened once what it has sent is not
// acknowledged for so long.
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

package storage

import (
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestAConnectionEndsWhenTheOtherEndHasVanished(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg, err := pgx.ParseConfig("postgres://" + l.Addr().String() + "/d")
	require.NoError(t, err)
	require.NoError(t, openPostgres(cfg, statementTimeout, 0, false).Close())
	conn, err := cfg.DialFunc(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		for option, want := range map[[2]int]int{
			{syscall.IPPROTO_TCP, tcpUserTimeout}: 20_000, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE}: 1,
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE}: 10, {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL}: 5,
		} {
			got, err := syscall.GetsockoptInt(int(fd), option[0], option[1])
			require.NoError(t, err)
			require.Equal(t, want, got, option)
		}
	}))
}

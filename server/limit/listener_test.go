package limit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An address may use only a part of the listener's connections.
func TestListenerBoundsAnAddress(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Listener = newListener(t.Context(), server.Listener, 3, newQuota(2), proxies{})
	server.Config.ConnContext = WithConn
	server.Start()
	t.Cleanup(server.Close)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	served := func(c net.Conn) bool {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && response.StatusCode == http.StatusOK
	}
	first, second := dial(), dial()
	require.True(t, served(first))
	require.True(t, served(second))
	require.False(t, served(dial()), "a third one of the address is closed")
	first.Close()
	require.Eventually(t, func() bool { return served(dial()) }, 30*time.Second, time.Millisecond)
}

// A full listener makes new connections wait. Closing it ends the wait.
func TestListenerIsFull(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := newListener(t.Context(), listener, 1, nil, proxies{})
	for range 2 {
		c, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
	}
	first, err := l.Accept()
	require.NoError(t, err)
	second := make(chan error, 1)
	accept := func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
		}
		second <- err
	}
	go accept()
	require.Empty(t, second)
	require.NoError(t, first.Close())
	require.NoError(t, <-second)

	require.NoError(t, l.slots.Acquire(t.Context(), 1))
	go accept()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-second, net.ErrClosed)
}

package transport

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"tideline/server/internal/servertest"
)

// counted is a connection that counts what it reads.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// offering connects a client that offers compression or not, up to connection_ack.
// read counts the bytes received.
func (f *fixture) offering(t *testing.T, protocol string, offers bool) (p *servertest.Peer, read *atomic.Int64) {
	read = new(atomic.Int64)
	p = servertest.Dial(t, &websocket.Dialer{EnableCompression: offers, NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return counted{conn, read}, err
	}}, f.server.URL, protocol)
	p.Send(`{"type":"connection_init"}`)
	p.Expect(`{"type":"connection_ack"}`)
	return p, read
}

// ping returns a message of size bytes, whose answer has the same size.
func ping(size int) string {
	const text = `{"type":"ping","payload":{"x":""}}`
	return text[:len(text)-3] + strings.Repeat("x", size-len(text)) + text[len(text)-3:]
}

// Messages are compressed only if both sides have agreed to it and the message is large.
func TestSocketsDeflate(t *testing.T) {
	t.Parallel()
	for _, agrees := range []bool{false, true} {
		f := newFixture(t, func(c *Config) { c.Deflate = agrees })
		for _, offers := range []bool{false, true} {
			p, read := f.offering(t, modern, offers)
			for _, size := range []int{100, 1023, 1024, 100_000, 50} {
				before := read.Load()
				p.Send(ping(size))
				require.JSONEq(t, strings.Replace(ping(size), "ping", "pong", 1), p.Receive())
				if took := read.Load() - before; agrees && offers && size >= 1024 {
					require.Less(t, took, int64(size/4), "%d bytes", size)
				} else {
					require.GreaterOrEqual(t, took, int64(size), "%d bytes", size)
				}
			}
		}
	}
}

// Compressed messages are bounded by their decompressed size: before connection_init by maxInit, and
// afterwards by MaxBody. Their share of the budget is released.
func TestInflatedMessagesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Deflate, c.MaxBody, c.InitTimeout = true, 100_000, time.Minute })
	bodies := semaphore.NewWeighted(300_000)
	f.handler.api.bodies = bodies
	for _, most := range []int{maxInit, 100_000} {
		for _, size := range []int{most, most + 1, 4 << 20} {
			p := servertest.Dial(t, &websocket.Dialer{EnableCompression: true}, f.server.URL, modern)
			if most != maxInit {
				p.Send(`{"type":"connection_init"}`)
				p.Expect(`{"type":"connection_ack"}`)
			}
			// The message is compressed to less than a thousandth before its first byte is sent. A client
			// that is still sending when its socket is closed would not read the reason.
			message, err := websocket.NewPreparedMessage(websocket.TextMessage, []byte(ping(size)))
			require.NoError(t, err)
			require.NoError(t, p.Conn.WritePreparedMessage(message))
			if size <= most {
				require.JSONEq(t, strings.Replace(ping(size), "ping", "pong", 1), p.Receive())
				p.Conn.Close()
			} else {
				p.ExpectClose(websocket.CloseMessageTooBig)
			}
		}
	}
	f.gone(t)
	becomesFree(t, bodies, 300_000)

	// Another client's messages fit into the budget, and a message is charged with its decompressed size.
	require.True(t, bodies.TryAcquire(290_000))
	p, _ := f.offering(t, modern, true)
	p.Send(ping(60_000))
	p.ExpectClose(websocket.CloseTryAgainLater)
	bodies.Release(290_000)
}

// A message that is marked as compressed but is not ends its own socket and no other.
func TestMessageThatCannotBeInflated(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *Config) { c.Deflate = true })
	other, _ := f.offering(t, modern, true)
	p, _ := f.offering(t, modern, true)
	_, err := p.Conn.NetConn().Write([]byte{0x80 | 0x40 | websocket.TextMessage, 0x80 | 4, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	require.NoError(t, err)
	_, _, err = p.Conn.ReadMessage()
	require.Error(t, err)
	require.Eventually(t, func() bool { return f.sockets.count() == 1 }, 30*time.Second, time.Millisecond)
	other.Send(ping(5000))
	require.JSONEq(t, strings.Replace(ping(5000), "ping", "pong", 1), other.Receive())
}

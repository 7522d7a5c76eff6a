package transport

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
)

// dialAs opens a socket with an Authorization header in its handshake.
func (f *fixture) dialAs(t *testing.T, authorization string) *servertest.Peer {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), http.Header{"Authorization": {authorization}})
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &servertest.Peer{T: t, Conn: conn}
}

// A connection_init without a token uses the token of the handshake.
func TestTokenOfTheHandshake(t *testing.T) {
	f := newFixture(t, nil)
	f.logIn("bob", time.Now().Add(time.Hour))
	watched := func(p *servertest.Peer) []int64 {
		p.Expect(`{"type":"connection_ack"}`)
		return f.watchedSessions()
	}
	p := f.dialAs(t, "Bearer bob")
	p.Send(`{"type":"connection_init"}`)
	require.Equal(t, []int64{20}, watched(p))
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)

	p = f.dialAs(t, "Bearer bob")
	p.Send(messageOf("connection_init", asUser))
	require.Equal(t, []int64{10, 20}, watched(p), "the message says more than the handshake")

	for _, bad := range []string{"Bearer nobody", "Basic bob", "bob"} {
		p = f.dialAs(t, bad)
		p.Send(`{"type":"connection_init"}`)
		p.ExpectClose(4403)
	}
}

// When its token expires, a socket is closed with a code on which clients return with a new one. An
// event stream ends without "complete".
func TestConnectionsEndWithTheirToken(t *testing.T) {
	f := newFixture(t, nil)
	f.logIn("bob", time.Now().Add(2*time.Second))
	p := f.connect(t, modern, `{"Authorization":"Bearer bob"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{idle}"}}`)
	e := f.ask(t, http.MethodPost, "bob", "subscription{idle}")
	require.Equal(t, http.StatusOK, e.response.StatusCode)
	p.ExpectClose(4403)
	e.ends()
	require.NoError(t, e.lines.Err(), "the server ended it, not this client's patience")
	e = f.ask(t, http.MethodPost, "bob", "subscription{idle}")
	require.Equal(t, http.StatusUnauthorized, e.response.StatusCode)
}

// Package servertest provides HTTP and WebSocket clients for the tests of the server's packages.
package servertest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// WebSocket subprotocols.
const (
	Modern = "graphql-transport-ws"
)

// AsJSON is the content type of requests.
const AsJSON = "application/json"

// Peer is a raw WebSocket client. Its test fails if an expected message does not come in time.
type Peer struct {
	*testing.T
	Conn *websocket.Conn
}

// Dial opens a WebSocket at an http or https URL. The dialer may be nil.
func Dial(t *testing.T, dialer *websocket.Dialer, url string, protocols ...string) *Peer {
	t.Helper()
	d := websocket.Dialer{}
	if dialer != nil {
		d = *dialer
	}
	d.Subprotocols, d.HandshakeTimeout = protocols, 30*time.Second
	conn, response, err := d.Dial("ws"+strings.TrimPrefix(url, "http"), nil)
	require.NoError(t, err)
	response.Body.Close()
	t.Cleanup(func() { conn.Close() })
	return &Peer{t, conn}
}

// Send sends a message.
func (p *Peer) Send(message string) {
	p.Helper()
	require.NoError(p, p.Conn.WriteMessage(websocket.TextMessage, []byte(message)))
}

// Receive returns the next message.
func (p *Peer) Receive() string {
	p.Helper()
	require.NoError(p, p.Conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	kind, data, err := p.Conn.ReadMessage()
	require.NoError(p, err)
	require.Equal(p, websocket.TextMessage, kind)
	return string(data)
}

// Expect receives the next message and compares it with the given JSON.
func (p *Peer) Expect(message string) {
	p.Helper()
	require.JSONEq(p, message, p.Receive())
}

// ExpectClose reads until the close frame, checks its code and returns its reason.
func (p *Peer) ExpectClose(code int) string {
	p.Helper()
	require.NoError(p, p.Conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	for {
		_, _, err := p.Conn.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		require.ErrorAs(p, err, &closed)
		require.Equal(p, code, closed.Code, closed.Text)
		return closed.Text
	}
}

// Ask makes a request on a new connection, and returns the answer.
func Ask(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", AsJSON)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data)
}

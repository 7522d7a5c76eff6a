package transport

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/feed/session"
	"tideline/server/internal/servertest"
)

const (
	modern = servertest.Modern
	asUser = `{"Authorization":"Bearer alice"}`
)

func TestModernFlow(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, asUser)
	p.Send(`{"type":"ping","payload":{"n":1}}`)
	p.Expect(`{"type":"pong","payload":{"n":1}}`)
	p.Send(`{"type":"ping"}`)
	p.Expect(`{"type":"pong"}`)
	p.Send(`{"type":"pong"}`)

	p.Send(`{"id":"q","type":"subscribe","payload":{"query":"query($n:Int){echo(n:$n)}","variables":{"n":7}}}`)
	p.Expect(`{"id":"q","type":"next","payload":{"data":{"echo":7}}}`)
	p.Expect(`{"id":"q","type":"complete"}`)

	p.Send(`{"id":"q","type":"subscribe","payload":{"query":"mutation{set(n:3)}"}}`)
	p.Expect(`{"id":"q","type":"next","payload":{"data":{"set":3}}}`)
	p.Expect(`{"id":"q","type":"complete"}`)

	p.Send(`{"id":"s","type":"subscribe","payload":{"query":"subscription{count(to:2)}"}}`)
	p.Expect(`{"id":"s","type":"next","payload":{"data":{"count":1}}}`)
	p.Expect(`{"id":"s","type":"next","payload":{"data":{"count":2}}}`)
	p.Expect(`{"id":"s","type":"complete"}`)

	p.Send(`{"id":"n","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	p.Expect(`{"id":"n","type":"next","payload":{"data":{"news":1}}}`)
	require.Equal(t, int64(1), f.subscriptions.Load())
	p.Send(`{"id":"n","type":"complete"}`)
	// The id can be reused at once, and nothing more of the first operation arrives.
	p.Send(`{"id":"n","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.Expect(`{"id":"n","type":"next","payload":{"data":{"hello":"world"}}}`)
	p.Expect(`{"id":"n","type":"complete"}`)
	require.Eventually(t, func() bool {
		return f.subscriptions.Load() == 0
	}, 30*time.Second, time.Millisecond)

	require.NoError(t, p.Conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "")))
	p.ExpectClose(1000)
	f.gone(t)
}

// An error ends an operation: no complete follows.
func TestModernErrors(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, "")
	for name, c := range map[string]struct{ query, code string }{
		"unparsable":           {"{", "GRAPHQL_PARSE_FAILED"},
		"invalid":              {"{nothing}", "GRAPHQL_VALIDATION_FAILED"},
		"refused subscription": {"subscription{refused}", "UNAUTHENTICATED"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &servertest.Peer{T: t, Conn: p.Conn}
			p.Send(fmt.Sprintf(`{"id":"e","type":"subscribe","payload":{"query":%q}}`, c.query))
			answer := p.Receive()
			require.Contains(t, answer, `"type":"error","id":"e","payload":[{`)
			require.Contains(t, answer, `"code":"`+c.code+`"`)
			p.Send(`{"type":"ping"}`)
			p.Expect(`{"type":"pong"}`)
		})
	}
	p.Send(`{"id":"e","type":"subscribe","payload":{"query":"{fail}"}}`)
	answer := p.Receive()
	require.Contains(t, answer, `"type":"next"`)
	require.Contains(t, answer, `"requestId":"`)
	require.NotContains(t, answer, "secret")
	p.Expect(`{"id":"e","type":"complete"}`)
}

func TestCloseCodes(t *testing.T) {
	initOnly := []string{`{"type":"connection_init"}`}
	then := func(messages ...string) []string { return append(initOnly, messages...) }
	forever := `{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`
	for name, c := range map[string]struct {
		protocol string // defaults to graphql-transport-ws
		messages []string
		code     int
		reason   string
	}{
		"not JSON":                  {messages: []string{`{`}, code: 4400},
		"two values":                {messages: []string{`{"type":"ping"} {}`}, code: 4400},
		"an array":                  {messages: []string{`[]`}, code: 4400},
		"null":                      {messages: []string{`null`}, code: 4400},
		"not UTF-8":                 {messages: []string{"{\"type\":\"\xff\"}"}, code: 4400},
		"no type":                   {messages: []string{`{}`}, code: 4400},
		"type is a number":          {messages: []string{`{"type":1}`}, code: 4400},
		"unknown type":              {messages: then(`{"type":"hello"}`), code: 4400},
		"the server's type":         {messages: then(`{"type":"connection_ack"}`), code: 4400},
		"the other protocol's type": {messages: then(`{"id":"1","type":"start","payload":{"query":"{hello}"}}`), code: 4400},
		"id is a number":            {messages: then(`{"id":1,"type":"subscribe","payload":{"query":"{hello}"}}`), code: 4400},
		"no id":                     {messages: then(`{"type":"subscribe","payload":{"query":"{hello}"}}`), code: 4400},
		"id is too long": {
			messages: then(`{"id":"` + strings.Repeat("x", maxID+1) + `","type":"subscribe","payload":{"query":"subscription{news}"}}`),
			code:     4400, reason: "Invalid message received: an id may have at most 128 bytes",
		},
		"id of the maximum length": {
			messages: then(`{"id":"`+strings.Repeat("x", maxID)+`","type":"subscribe","payload":{"query":"subscription{news}"}}`, `{`),
			code:     4400, reason: "Invalid message received: it is not one well-formed JSON object",
		},
		"no payload":                 {messages: then(`{"id":"1","type":"subscribe"}`), code: 4400},
		"no query":                   {messages: then(`{"id":"1","type":"subscribe","payload":{}}`), code: 4400},
		"variables are no object":    {messages: then(`{"id":"1","type":"subscribe","payload":{"query":"{hello}","variables":1}}`), code: 4400},
		"payload of init":            {messages: []string{`{"type":"connection_init","payload":1}`}, code: 4400},
		"subscribe before init":      {messages: []string{forever}, code: 4401, reason: "Unauthorized"},
		"unknown token":              {messages: []string{`{"type":"connection_init","payload":{"authorization":"Bearer mallory"}}`}, code: 4403, reason: "Forbidden"},
		"not a bearer token":         {messages: []string{`{"type":"connection_init","payload":{"Authorization":"Basic YTpi"}}`}, code: 4403, reason: "Forbidden"},
		"token is a number":          {messages: []string{`{"type":"connection_init","payload":{"Authorization":1}}`}, code: 4403, reason: "Forbidden"},
		"sessions cannot be checked": {messages: []string{`{"type":"connection_init","payload":{"Authorization":"Bearer database-down"}}`}, code: 1013},
		"subscription cannot start":  {messages: then(`{"id":"1","type":"subscribe","payload":{"query":"subscription{unavailable}"}}`), code: 1013},
		"no subprotocol we know":     {protocol: "soap", code: 4406, reason: "Subprotocol not acceptable: use graphql-transport-ws"},
		"the older subprotocol":      {protocol: "graphql-ws", messages: []string{`{"type":"connection_init"}`}, code: 4406, reason: "Subprotocol not acceptable: use graphql-transport-ws"},
		"no init in time":            {code: 4408, reason: "Connection initialisation timeout"},
		"same id twice":              {messages: then(forever, forever), code: 4409, reason: "Subscriber for 1 already exists"},
		"second init":                {messages: then(initOnly...), code: 4429, reason: "Too many initialisation requests"},
		"too much before init":       {messages: []string{`{"type":"connection_init","payload":{"x":"` + strings.Repeat("x", maxInit) + `"}}`}, code: 1009},
		"too much":                   {messages: then(`{"type":"ping","payload":{"x":"` + strings.Repeat("x", maxBody) + `"}}`), code: 1009},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c *Config) {
				if name == "no init in time" {
					c.InitTimeout = 50 * time.Millisecond
				}
			})
			protocol := c.protocol
			if protocol == "" {
				protocol = modern
			}
			p := f.dial(t, protocol)
			for _, message := range c.messages {
				_ = p.Conn.WriteMessage(websocket.TextMessage, []byte(message)) // the server may have closed the connection
			}
			reason := p.ExpectClose(c.code)
			if c.reason != "" {
				require.Equal(t, c.reason, reason)
			}
			f.gone(t)
		})
	}
}

// The handshake selects the newer protocol, regardless of the client's preference.
func TestClientThatOffersBothSubprotocols(t *testing.T) {
	f := newFixture(t, nil)
	p := f.dial(t, "graphql-ws", modern)
	require.Equal(t, modern, p.Conn.Subprotocol())
	p.Send(`{"type":"connection_init"}`)
	p.Expect(`{"type":"connection_ack"}`)
}

func TestBinaryFrameIsRefused(t *testing.T) {
	f := newFixture(t, nil)
	p := f.dial(t, modern)
	require.NoError(t, p.Conn.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"ping"}`)))
	p.ExpectClose(4400)
}

func TestSocketEndsWithItsToken(t *testing.T) {
	f := newFixture(t, func(c *Config) {
		c.Authenticate = func(context.Context, string) (session.Viewer, time.Time, error) { // always 200 ms from the call
			return session.Viewer{ID: 2, Session: 20}, time.Now().Add(200 * time.Millisecond), nil
		}
	})
	p := f.connect(t, modern, `{"authorization":"Bearer short"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	p.ExpectClose(4403)
	f.gone(t)
}

func TestLoggedOutSocketCanDoNothing(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, asUser)
	f.logOut("alice")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.ExpectClose(4403)
}

// A session that cannot be checked may be checked later, so the client gets no error, which would be final.
func TestSocketWhoseSessionCannotBeChecked(t *testing.T) {
	f := newFixture(t, nil)
	for _, query := range []string{"{hello}", "subscription{news}"} {
		p := f.connect(t, modern, asUser)
		f.breakDatabase(true)
		p.Send(`{"id":"1","type":"subscribe","payload":{"query":"` + query + `"}}`)
		p.ExpectClose(1013)
		f.breakDatabase(false)
	}
	// If the session cannot be checked when a stream ends, the end is not final either.
	p := f.connect(t, modern, asUser)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	f.breakDatabase(true)
	close(f.news)
	p.ExpectClose(1013)
}

// If a stream ends because its session has ended, the socket ends too.
func TestEndedSessionEndsTheSocket(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, asUser)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	f.logOut("alice")
	close(f.news)
	p.ExpectClose(4403)
}

func TestOperationsAreBounded(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Operations = 2 })
	p := f.connect(t, modern, "")
	for _, id := range []string{"1", "2", "3"} {
		p.Send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	}
	answer := p.Receive()
	require.Contains(t, answer, `"type":"error","id":"3"`)
	require.Contains(t, answer, "RATE_LIMITED")
	p.Send(`{"id":"1","type":"complete"}`)
	require.Eventually(t, func() bool {
		p.Send(`{"id":"4","type":"subscribe","payload":{"query":"{hello}"}}`)
		answer := p.Receive()
		if strings.Contains(answer, "RATE_LIMITED") {
			return false
		}
		p.Expect(`{"id":"4","type":"complete"}`)
		return true
	}, 30*time.Second, time.Millisecond)
}

// An operation that the client stops before it has begun fails, and affects no other operation.
func TestStoppingWhatHasNotBegunStopsNothingElse(t *testing.T) {
	hold := make(chan struct{}, 1)
	var f *fixture
	f = newFixture(t, func(c *Config) {
		authenticate := c.Authenticate
		c.Authenticate = func(ctx context.Context, token string) (session.Viewer, time.Time, error) {
			select {
			case <-hold:
				f.begun <- struct{}{}
				<-ctx.Done()
				return session.Viewer{}, time.Time{}, ctx.Err()
			default:
				return authenticate(ctx, token)
			}
		}
	})
	p := f.connect(t, modern, asUser)
	for _, query := range []string{"{hello}", "subscription{held}"} {
		if query == "{hello}" {
			hold <- struct{}{} // holds the look-up of its session
		}
		p.Send(`{"id":"1","type":"subscribe","payload":{"query":"` + query + `"}}`)
		<-f.begun
		p.Send(`{"id":"1","type":"complete"}`)
		require.Eventually(t, func() bool { return f.underWay() == 0 }, 30*time.Second, time.Millisecond)
		p.Send(`{"id":"2","type":"subscribe","payload":{"query":"{hello}"}}`)
		p.Expect(`{"id":"2","type":"next","payload":{"data":{"hello":"world"}}}`)
		p.Expect(`{"id":"2","type":"complete"}`)
	}
}

func TestSocketsAreBounded(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxSockets = 1 })
	f.dial(t, modern)
	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	_, response, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
}

func TestOrigin(t *testing.T) {
	f := newFixture(t, nil)
	for origin, want := range map[string]int{
		"":                       http.StatusSwitchingProtocols,
		f.server.URL:             http.StatusSwitchingProtocols,
		"https://friend.example": http.StatusSwitchingProtocols,
		"https://evil.example":   http.StatusForbidden,
		"null":                   http.StatusForbidden,
		"http://friend.example":  http.StatusForbidden,
	} {
		t.Run(origin, func(t *testing.T) {
			header := http.Header{}
			if origin != "" {
				header.Set("Origin", origin)
			}
			dialer := websocket.Dialer{Subprotocols: []string{modern}}
			conn, response, _ := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), header)
			require.NotNil(t, response)
			require.Equal(t, want, response.StatusCode)
			if conn != nil {
				conn.Close()
			}
		})
	}
}

// A client that stops reading is told to return later, and delays nobody else.
func TestSlowClientIsClosed(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.QueueFrames = 16 })
	slow := f.connect(t, modern, "")
	slow.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{flood}"}}`)
	require.Eventually(t, func() bool {
		return f.slowSockets.Load() == 1
	}, 30*time.Second, time.Millisecond)

	other := f.connect(t, modern, "")
	other.Send(`{"id":"1","type":"subscribe","payload":{"query":"{hello}"}}`)
	other.Expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)

	slow.ExpectClose(1013)
}

func TestClientThatNeverReadsAgainIsCutOff(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.QueueFrames, c.WriteTimeout = 16, 100*time.Millisecond })
	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{flood}"}}`)
	f.gone(t)
}

// A peer whose network has failed does not answer pings.
func TestSilentPeerIsDropped(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PingInterval = time.Second }) // a busy machine has pauses
	silent := f.connect(t, modern, "")
	silent.Conn.SetPingHandler(func(string) error { return nil })
	alive := f.connect(t, modern, "")
	for range 2 {
		alive.Expect(`{"type":"ping"}`) // reading also answers WebSocket pings
	}
	require.Eventually(t, func() bool {
		require.NoError(t, alive.Conn.SetReadDeadline(time.Now().Add(30*time.Second)))
		_, _, err := alive.Conn.ReadMessage()
		require.NoError(t, err)
		return f.sockets.count() == 1
	}, 30*time.Second, time.Millisecond)
}

func TestShutdown(t *testing.T) {
	f := newFixture(t, nil)
	idle := f.connect(t, modern, "")
	idle.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	busy := f.connect(t, modern, "")
	busy.Send(`{"id":"1","type":"subscribe","payload":{"query":"mutation{hold}"}}`)
	<-f.begun

	stopped := make(chan error, 1)
	go func() { stopped <- f.sockets.shutdown(t.Context()) }()
	idle.ExpectClose(1012)
	require.Never(t, func() bool { return len(stopped) > 0 }, 50*time.Millisecond, 10*time.Millisecond)
	close(f.free) // the mutation is answered first
	busy.Expect(`{"id":"1","type":"next","payload":{"data":{"hold":true}}}`)
	busy.Expect(`{"id":"1","type":"complete"}`)
	busy.ExpectClose(1012)
	require.NoError(t, <-stopped)

	_, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
}

func TestShutdownCutsOffWhatTakesTooLong(t *testing.T) {
	f := newFixture(t, nil)
	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"mutation{hold}"}}`)
	<-f.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.sockets.shutdown(ctx), context.Canceled)
	require.Zero(t, f.sockets.count())
}

// Clients leave nothing behind, however they leave.
func TestNothingIsLeftBehind(t *testing.T) {
	f := newFixture(t, nil)
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("SKIPPED: nobody counts open files here: %v", err)
		}
		return len(open)
	}
	f.connect(t, modern, "").Conn.Close()
	f.gone(t)
	goroutines, before := goleak.IgnoreCurrent(), files()
	var peers []*servertest.Peer
	for range 60 {
		p := f.connect(t, modern, asUser)
		p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{idle}"}}`)
		peers = append(peers, p)
	}
	var streams []events
	for range 20 {
		streams = append(streams, f.ask(t, http.MethodPost, "alice", "subscription{idle}"))
	}
	require.Eventually(t, func() bool {
		return f.subscriptions.Load() == 80
	}, 30*time.Second, time.Millisecond)
	for _, e := range streams {
		e.response.Body.Close()
	}
	for i, p := range peers {
		switch i % 3 {
		case 0: // no close frame
			p.Conn.Close()
		case 1:
			require.NoError(t, p.Conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(1000, "")))
			p.ExpectClose(1000)
			p.Conn.Close()
		case 2:
			p.Send(`{`)
			p.ExpectClose(4400)
			p.Conn.Close()
		}
	}
	f.gone(t)
	// The handlers of the event streams may still be at work: gone waits for sockets only.
	require.Eventually(t, func() bool { return files() <= before && f.subscriptions.Load() == 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, goleak.Find(goroutines))
}

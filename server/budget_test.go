package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func TestLargeBodiesShareABudget(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.bodies = newBudget(100_000)
	large := `{"query":"{hello}"` + strings.Repeat(" ", 60_000) + `}`
	require.Equal(t, http.StatusOK, f.post(large).Code)
	require.Equal(t, int64(100_000), f.handler.api.bodies.left.Load())

	require.True(t, f.handler.api.bodies.take(90_000))
	refused := f.post(large)
	require.Equal(t, http.StatusServiceUnavailable, refused.Code)
	require.Equal(t, "1", refused.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, f.post(`{"query":"{hello}"}`).Code, "small ones are read at no charge")
	f.handler.api.bodies.giveBack(90_000)
	require.Equal(t, http.StatusOK, f.post(large).Code)
	require.Equal(t, int64(100_000), f.handler.api.bodies.left.Load())

	f.handler.api.bodies = newBudget(bodyBudget)
	require.Equal(t, http.StatusRequestEntityTooLarge, f.post(`{"query":"`+strings.Repeat(" ", maxBody)+`"}`).Code)
	require.Equal(t, int64(bodyBudget), f.handler.api.bodies.left.Load())
}

// whole waits until the budget is.
func (b *budget) whole(t *testing.T, bytes int64) {
	t.Helper()
	require.Eventually(t, func() bool { return b.left.Load() == bytes }, 30*time.Second, time.Millisecond)
}

func TestLargeMessagesShareTheBudget(t *testing.T) {
	f := newFixture(t, nil)
	bodies := newBudget(100_000)
	f.handler.api.bodies = bodies
	hello := func(size int) string {
		const text = `{"id":"1","type":"subscribe","payload":{"query":"{hello}"}`
		return text + strings.Repeat(" ", size-len(text)-1) + "}"
	}
	p := f.connect(t, modern, "")
	asked := func(message string) {
		t.Helper()
		p.send(message)
		p.expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)
		p.expect(`{"id":"1","type":"complete"}`)
	}
	asked(hello(60_000))
	bodies.whole(t, 100_000)

	require.True(t, bodies.take(90_000))
	asked(hello(freeMessage / 2)) // small ones are read at no charge
	require.Equal(t, int64(10_000), bodies.left.Load())
	p.send(hello(60_000))
	p.expectClose(websocket.CloseTryAgainLater)
	bodies.giveBack(90_000)
	f.gone(t)
	bodies.whole(t, 100_000)

	// A subscription holds nothing of it while it lasts.
	p = f.connect(t, modern, "")
	p.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}` + strings.Repeat(" ", 40_000) + `}`)
	f.news <- 1
	p.expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	bodies.whole(t, 100_000)
	p.send(`{"id":"2","type":"subscribe","payload":{"query":"subscription{news}` + strings.Repeat(" ", maxLasting) + `"}}`)
	refused := p.receive()
	require.Contains(t, refused, `"QUERY_TOO_COMPLEX"`)
	require.Contains(t, refused, `"allowed":16384`)
}

func TestMaxBodyHoldsForMessages(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.maxBody = 2000
	ping := func(size int) string {
		const text = `{"type":"ping"`
		return text + strings.Repeat(" ", size-len(text)-1) + "}"
	}
	p := f.connect(t, modern, "")
	p.send(ping(2000))
	p.expect(`{"type":"pong"}`)
	p.send(ping(2001))
	p.expectClose(websocket.CloseMessageTooBig)
	f.gone(t)
}

// Signs of life do not extend the time that a message has.
func TestSlowMessageIsCutOff(t *testing.T) {
	f := newFixture(t, func(c *socketConfig) { c.ReadTimeout = 300 * time.Millisecond })
	p := f.connect(t, modern, "")
	slow, err := p.conn.NextWriter(websocket.TextMessage)
	require.NoError(t, err)
	_, err = io.WriteString(slow, strings.Repeat(" ", 50_000)) // more than its buffer: fragments leave
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_ = p.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		return f.sockets.count() == 0
	}, 30*time.Second, 20*time.Millisecond)
}

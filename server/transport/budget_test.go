package transport

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"
)

func TestLargeBodiesShareABudget(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.bodies = semaphore.NewWeighted(100_000)
	large := `{"query":"{hello}"` + strings.Repeat(" ", 60_000) + `}`
	require.Equal(t, http.StatusOK, f.post(large).Code)
	require.True(t, isFree(f.handler.api.bodies, 100_000))

	require.True(t, f.handler.api.bodies.TryAcquire(90_000))
	refused := f.post(large)
	require.Equal(t, http.StatusServiceUnavailable, refused.Code)
	require.Equal(t, "1", refused.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, f.post(`{"query":"{hello}"}`).Code, "small ones are read at no charge")
	f.handler.api.bodies.Release(90_000)
	require.Equal(t, http.StatusOK, f.post(large).Code)
	require.True(t, isFree(f.handler.api.bodies, 100_000))

	f.handler.api.bodies = semaphore.NewWeighted(bodyBudget)
	require.Equal(t, http.StatusRequestEntityTooLarge, f.post(`{"query":"`+strings.Repeat(" ", maxBody)+`"}`).Code)
	require.True(t, isFree(f.handler.api.bodies, bodyBudget))
}

// isFree reports whether exactly this weight is free.
func isFree(line *semaphore.Weighted, weight int64) bool {
	if !line.TryAcquire(weight) {
		return false
	}
	defer line.Release(weight)
	if line.TryAcquire(1) {
		line.Release(1)
		return false
	}
	return true
}

// becomesFree waits until exactly this weight is free.
func becomesFree(t *testing.T, line *semaphore.Weighted, weight int64) {
	t.Helper()
	require.Eventually(t, func() bool { return isFree(line, weight) }, 30*time.Second, time.Millisecond)
}

func TestLargeMessagesShareTheBudget(t *testing.T) {
	f := newFixture(t, nil)
	bodies := semaphore.NewWeighted(100_000)
	f.handler.api.bodies = bodies
	hello := func(size int) string {
		const text = `{"id":"1","type":"subscribe","payload":{"query":"{hello}"}`
		return text + strings.Repeat(" ", size-len(text)-1) + "}"
	}
	p := f.connect(t, modern, "")
	asked := func(message string) {
		t.Helper()
		p.Send(message)
		p.Expect(`{"id":"1","type":"next","payload":{"data":{"hello":"world"}}}`)
		p.Expect(`{"id":"1","type":"complete"}`)
	}
	asked(hello(60_000))
	becomesFree(t, bodies, 100_000)

	require.True(t, bodies.TryAcquire(90_000))
	asked(hello(freeMessage / 2)) // small messages are not charged
	require.True(t, isFree(bodies, 10_000))
	p.Send(hello(60_000))
	p.ExpectClose(websocket.CloseTryAgainLater)
	bodies.Release(90_000)
	f.gone(t)
	becomesFree(t, bodies, 100_000)

	// A subscription that has begun is not charged to the budget.
	p = f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}` + strings.Repeat(" ", 40_000) + `}`)
	f.news <- 1
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	becomesFree(t, bodies, 100_000)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"subscription{news}` + strings.Repeat(" ", maxLasting) + `"}}`)
	refused := p.Receive()
	require.Contains(t, refused, `"QUERY_TOO_COMPLEX"`)
	require.Contains(t, refused, `"allowed":16384`)
}

func TestMaxBodyHoldsForMessages(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.config.MaxBody = 2000
	ping := func(size int) string {
		const text = `{"type":"ping"`
		return text + strings.Repeat(" ", size-len(text)-1) + "}"
	}
	p := f.connect(t, modern, "")
	p.Send(ping(2000))
	p.Expect(`{"type":"pong"}`)
	p.Send(ping(2001))
	p.ExpectClose(websocket.CloseMessageTooBig)
	f.gone(t)
}

// Pings do not extend the time limit of a message.
func TestSlowMessageIsCutOff(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MessageTimeout = 300 * time.Millisecond })
	p := f.connect(t, modern, "")
	slow, err := p.Conn.NextWriter(websocket.TextMessage)
	require.NoError(t, err)
	_, err = io.WriteString(slow, strings.Repeat(" ", 50_000)) // more than the buffer, so that fragments are sent
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_ = p.Conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		return f.sockets.count() == 0
	}, 30*time.Second, 20*time.Millisecond)
}

package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// dearHeartbeats has an event each second count unread posts as often as a document may.
func dearHeartbeats() string {
	var counts strings.Builder
	for i := range 29 {
		fmt.Fprintf(&counts, " a%d: unreadCount", i)
	}
	return "subscription { timelineEvents(heartbeat: 1) { ... on TimelineHeartbeat {" + counts.String() + " } } }"
}

// A subscription that has begun ends when its user has spent what the user may spend. That is three heartbeats here,
// and each takes six seconds to come back: on a machine that is slow for some seconds, the end comes later.
func TestEventsHaveTheirPrice(t *testing.T) {
	p := start(t, "--rate-cost=1000", "--max-cost=300")
	other, abuser := p.signUp("other"), p.signUp("abuser")
	s, refused := p.open(abuser)
	require.NotNil(t, s, refused)
	s.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription { timelineEvents(heartbeat: 1) { ... on TimelineHeartbeat { unreadCount } } }"}}`)
	heartbeats, message := 0, s.receive()
	for ; !strings.Contains(message, `"RATE_LIMITED"`); message = s.receive() {
		require.Contains(t, message, `"type":"next"`)
		require.Contains(t, message, `"unreadCount":0`)
		heartbeats++
		require.Less(t, heartbeats, 60, "they are not paid for")
	}
	require.Positive(t, heartbeats, "it had begun")
	require.Contains(t, message, `"id":"1"`)
	require.Contains(t, message, `"type":"error"`)
	require.Contains(t, message, `"retryAfter"`)
	require.Equal(t, http.StatusOK, p.ask("{timeline{nodes{id}}}", nil, as(other)).status)
}

// One account opens many sockets, subscribes on each as often as it may, and has every event count what it may.
// It is refused, and others are answered. The subscriptions by themselves are more than it may spend, whatever the
// time in which they and their events come.
func TestManyDearSubscriptions(t *testing.T) {
	p := start(t, "--rate-cost=6000")
	other, abuser := p.signUp("other"), p.signUp("abuser")
	limited := make(chan string, 1)
	for range 10 {
		s, refused := p.open(abuser)
		require.NotNil(t, s, refused)
		for i := range 15 {
			require.NoError(t, s.conn.WriteJSON(map[string]any{"id": fmt.Sprint(i), "type": "subscribe", "payload": map[string]any{"query": dearHeartbeats()}}))
		}
		go listenFor(s.conn, "RATE_LIMITED", limited)
	}
	ask := func() {
		page := p.ask("{timeline{unreadCount nodes{id}}}", nil, as(other))
		require.Equal(t, http.StatusOK, page.status, page.body)
		require.JSONEq(t, `{"data":{"timeline":{"unreadCount":0,"nodes":[]}}}`, page.body)
	}
	ask()
	require.Contains(t, <-limited, `"retryAfter"`)
	ask()
	p.healthy()
}

// listenFor reads a connection until it ends, and passes on one of the messages that have the text.
func listenFor(conn *websocket.Conn, text string, found chan<- string) {
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if json.Valid(raw) && strings.Contains(string(raw), text) {
			select {
			case found <- string(raw):
			default: // one is enough
			}
		}
	}
}

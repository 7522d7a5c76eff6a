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

// dearHeartbeats returns an expensive subscription. Each heartbeat, one per second, counts the
// unread posts as often as the limits on a document allow.
func dearHeartbeats() string {
	var counts strings.Builder
	for i := range 29 {
		fmt.Fprintf(&counts, " a%d: unreadCount", i)
	}
	return "subscription { timelineEvents(heartbeat: 1) { ... on TimelineHeartbeat {" + counts.String() + " } } }"
}

// A running subscription ends when its user's cost budget is spent. The budget here pays for three heartbeats and
// regains one heartbeat in six seconds, so on a slow machine the subscription ends later.
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

// One account opens many sockets with many expensive subscriptions each. The server refuses this account and still
// answers others. The subscriptions alone exceed the account's budget, so the result does not depend on timing.
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

// listenFor reads a connection until it ends. It sends a message that contains the text to found, unless the channel
// is full.
func listenFor(conn *websocket.Conn, text string, found chan<- string) {
	for {
		_, raw, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if json.Valid(raw) && strings.Contains(string(raw), text) {
			select {
			case found <- string(raw):
			default: // one message is enough
			}
		}
	}
}

package transport

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func TestDepartures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		clients           int
		within            time.Duration
		leaveIn, returnIn time.Duration
	}{
		"few":                     {5, 12 * time.Second, 10 * time.Millisecond, 10 * time.Millisecond},
		"as many as the time has": {6000, 12 * time.Second, 12 * time.Second, 12 * time.Second},
		"more":                    {20_000, 12 * time.Second, 12 * time.Second, 40 * time.Second},
		"very many":               {1_000_000, 12 * time.Second, 12 * time.Second, time.Minute},
		"no bound":                {20_000, 0, 40 * time.Second, 40 * time.Second},
		"no time":                 {20_000, 1, 1, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepartures(c.clients, c.within)
			require.Equal(t, departures{c.clients, c.leaveIn, c.returnIn}, d)
			var left, returned time.Duration
			perSecond := max(comeBackRate, c.clients/60+1)
			for i := range c.clients {
				leaves, waits := d.of(i)
				// An assertion for each of a million clients would take a minute with the race detector.
				if leaves < left || leaves+waits < returned {
					t.Fatalf("client %d leaves after %v and is back after %v, before the last one (%v, %v)", i, leaves, leaves+waits, left, returned)
				}
				if leaves > c.leaveIn || waits < 0 || waits >= longestAway {
					t.Fatalf("client %d leaves after %v and waits for %v", i, leaves, waits)
				}
				if leaves+waits < time.Duration(i)*time.Second/time.Duration(perSecond)-time.Microsecond {
					t.Fatalf("client %d is back after %v, sooner than the rate allows", i, leaves+waits)
				}
				left, returned = leaves, leaves+waits
			}
		})
	}
}

// waitOf parses the wait in a close reason, in the format of docs/live.md.
func waitOf(t *testing.T, reason string) time.Duration {
	t.Helper()
	var ms int
	_, err := fmt.Sscanf(reason, "reconnect in %dms", &ms)
	require.NoError(t, err, reason)
	require.Equal(t, fmt.Sprintf("reconnect in %dms", ms), reason)
	return time.Duration(ms) * time.Millisecond
}

// A stopping server sends its clients away one after the other, idle ones first, and tells each how long to
// wait. Until its turn comes, a client is served.
func TestStoppingServerSendsClientsAwayOneByOne(t *testing.T) {
	f := newFixture(t, nil)
	paused, goOn := make(chan struct{}), make(chan struct{})
	f.sockets.sleep = func(context.Context, time.Duration, <-chan struct{}) {
		paused <- struct{}{}
		<-goOn
	}
	busy := f.connect(t, modern, "")
	busy.Send(`{"id":"1","type":"subscribe","payload":{"query":"mutation{hold}"}}`)
	<-f.begun
	listening := f.connect(t, modern, "")
	listening.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	f.news <- 1
	listening.Expect(`{"id":"1","type":"next","payload":{"data":{"news":1}}}`)
	still := f.connect(t, modern, "")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- f.sockets.shutdown(ctx) }()
	<-paused
	goOn <- struct{}{}
	require.Zero(t, waitOf(t, still.ExpectClose(1012)))

	<-paused
	f.news <- 2
	listening.Expect(`{"id":"1","type":"next","payload":{"data":{"news":2}}}`)
	goOn <- struct{}{}
	waitOf(t, listening.ExpectClose(1012))

	<-paused
	goOn <- struct{}{}
	close(f.free) // the mutation is answered first
	busy.Expect(`{"id":"1","type":"next","payload":{"data":{"hold":true}}}`)
	busy.Expect(`{"id":"1","type":"complete"}`)
	waitOf(t, busy.ExpectClose(1012))
	require.NoError(t, <-stopped)
}

// If there is too little time for the pace, sockets and streams are told to wait.
func TestStoppingServerTellsClientsToWait(t *testing.T) {
	f := newFixture(t, nil)
	f.sockets.sleep = func(context.Context, time.Duration, <-chan struct{}) {}
	var streams []events
	for range 3 {
		e := f.ask(t, http.MethodPost, "alice", "subscription{news}")
		streams = append(streams, e)
	}
	still := f.connect(t, modern, "")
	require.Eventually(t, func() bool { return f.subscriptions.Load() == 3 }, 30*time.Second, time.Millisecond)

	clients := []client{}
	f.sockets.mu.Lock()
	f.sockets.closing = true
	for socket := range f.sockets.open {
		clients = append(clients, &socket.operations)
	}
	for stream := range f.sockets.streams {
		clients = append(clients, stream)
	}
	f.sockets.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	f.sockets.sendAway(ctx, clients, nil)

	require.Zero(t, waitOf(t, still.ExpectClose(1012)))
	waits := map[string]bool{}
	for _, e := range streams {
		for e.lines.Scan() {
			if wait, found := strings.CutPrefix(e.lines.Text(), "retry: "); found {
				waits[wait] = true
			}
			require.NotContains(t, e.lines.Text(), "complete")
		}
	}
	require.Equal(t, map[string]bool{"1": true, "3": true, "5": true}, waits, "two milliseconds apart, less the nanosecond, cut")
	require.NoError(t, f.sockets.shutdown(t.Context()))
}

// A page of another site is told why it is refused. The refusal is also logged, since a proxy that
// changes the host causes the same.
func TestRefusedOriginIsToldAndLogged(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	handshake := func(origin, host string) (*http.Response, string) {
		header := http.Header{"Origin": {origin}}
		if host != "" {
			header.Set("Host", host)
		}
		dialer := websocket.Dialer{Subprotocols: []string{modern}}
		conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), header)
		require.NotNil(t, response, "%v", err)
		if err == nil {
			conn.Close()
		}
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(response.Body)
		return response, body.String()
	}
	for range 3 {
		response, body := handshake("https://evil.example", "feed.example.com")
		require.Equal(t, http.StatusForbidden, response.StatusCode)
		require.Contains(t, body, "https://evil.example")
		require.Contains(t, body, "feed.example.com")
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), &log)
	require.Contains(t, log.String(), "origin=https://evil.example host=feed.example.com")

	for _, origin := range []string{"https://feed.example.com", "https://feed.example.com:443", "https://friend.example", "https://friend.example:443"} {
		for _, host := range []string{"feed.example.com", "feed.example.com:443"} {
			response, body := handshake(origin, host)
			require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode, "%s %s %s", origin, host, body)
		}
	}
	f.gone(t)
}

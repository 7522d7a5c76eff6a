package transport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gorilla/websocket"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"tideline/graph/exec"
	"tideline/server/internal/servertest"
	"tideline/server/limit"
)

// limits returns limits that refuse as little as possible, except for what the test sets. The
// clock of their rates stands still.
func limits(t *testing.T, set func(*limit.Config)) *limit.Limits {
	server := miniredis.RunT(t)
	server.SetTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	config := limit.Config{
		RateAccounts: 60_000, RateCredentials: 60_000, RateMutations: 60_000, RateCost: 10_000_000, RateKeyMutations: 60_000, RateKeyCost: 60_000_000, RateNewAccount: 60,
		MaxSocketsPerUser: 1_000_000, MaxSocketsPerAddress: 1_000_000,
		MaxSubscriptionsPerUser: 1_000_000, MaxSubscriptionsPerAddress: 1_000_000,
	}
	set(&config)
	l, err := limit.New(rdb, config)
	require.NoError(t, err)
	return l
}

// serveWith restarts the fixture's server with the limits and their listener.
func (f *fixture) serveWith(t *testing.T, l *limit.Limits) {
	f.handler.api.config.Limits = l
	server := httptest.NewUnstartedServer(IdentifyRequests(f.handler))
	server.Listener = l.Listener(t.Context(), server.Listener)
	server.Config.ConnContext = limit.WithConn
	server.Start()
	t.Cleanup(server.Close)
	f.server.Close()
	f.server = server
}

// expectRoomFor checks that the listener accepts exactly that many connections,
// once the closed ones are gone.
func (f *fixture) expectRoomFor(t *testing.T, connections int) {
	t.Helper()
	for range connections {
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", strings.TrimPrefix(f.server.URL, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, "GET /graphql?query={hello} HTTP/1.1\r\nHost: x\r\n\r\n")
			require.NoError(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
			response, err := http.ReadResponse(bufio.NewReader(c), nil)
			return err == nil && response.StatusCode == http.StatusOK
		}, 30*time.Second, time.Millisecond)
	}
}

func TestSocketsOfAnAddress(t *testing.T) {
	f := newFixture(t, nil)
	f.serveWith(t, limits(t, func(c *limit.Config) { c.MaxSocketsPerAddress, c.MaxConnections = 2, 10 }))
	first := f.connect(t, modern, "")
	f.connect(t, modern, "")
	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	_, response, err := dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	body, _ := io.ReadAll(response.Body)
	require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Retry-After"))
	require.Contains(t, string(body), "2 sockets")

	first.Conn.Close()
	require.Eventually(t, func() bool { return f.sockets.count() == 1 }, 30*time.Second, time.Millisecond)
	f.connect(t, modern, "")
	status, _ := servertest.Ask(t, http.MethodPost, f.server.URL, `{"query":"{hello}"}`)
	require.Equal(t, http.StatusOK, status, "other requests are no sockets")
	f.expectRoomFor(t, 7) // the limit of an address, in which sockets do not count
}

func TestSocketsOfAUser(t *testing.T) {
	f := newFixture(t, nil)
	f.serveWith(t, limits(t, func(c *limit.Config) { c.MaxSocketsPerUser = 1 }))
	f.logIn("bob", time.Now().Add(time.Hour))
	const alice, bob = `{"Authorization":"Bearer alice"}`, `{"Authorization":"Bearer bob"}`
	hello := func(p *servertest.Peer, id string) string {
		p.Send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"{hello}"}}`)
		return p.Receive()
	}
	first := f.connect(t, modern, alice)
	require.Contains(t, hello(first, "1"), "world")
	first.Expect(`{"id":"1","type":"complete"}`)
	require.Contains(t, hello(first, "2"), "world", "one socket counts once")
	second := f.connect(t, modern, alice)
	refusal := hello(second, "1")
	require.Contains(t, refusal, `"RATE_LIMITED"`)
	require.Contains(t, refusal, `"allowed":1`)
	require.Contains(t, hello(f.connect(t, modern, bob), "1"), "world")
	require.Contains(t, hello(f.connect(t, modern, ""), "1"), "world")
	first.Conn.Close()
	require.Eventually(t, func() bool { return f.sockets.count() == 3 }, 30*time.Second, time.Millisecond)
	require.Contains(t, hello(second, "2"), "world")
}

func TestSubscriptionsOfAUserAndAnAddress(t *testing.T) {
	f := newFixture(t, nil)
	f.serveWith(t, limits(t, func(c *limit.Config) {
		c.MaxSubscriptionsPerUser, c.MaxSubscriptionsPerAddress = 2, 3
	}))
	start := func(p *servertest.Peer, id string) {
		p.Send(`{"id":"` + id + `","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	}
	news := func(p *servertest.Peer) string { // only a running subscription can take the value
		f.news <- 1
		return p.Receive()
	}
	p := f.connect(t, modern, `{"Authorization":"Bearer alice"}`)
	start(p, "1")
	require.Contains(t, news(p), `"news":1`)
	start(p, "2")
	require.Contains(t, news(p), `"news":1`)
	start(p, "3")
	require.Contains(t, p.Receive(), "A user may have 2 subscriptions")
	anonymous := f.connect(t, modern, "")
	start(anonymous, "1")
	start(anonymous, "2")
	require.Contains(t, anonymous.Receive(), "An address may have 3 subscriptions")
	p.Send(`{"id":"1","type":"complete"}`)
	require.Eventually(t, func() bool {
		start(p, "4")
		p.Send(`{"id":"4","type":"complete"}`)
		p.Send(`{"type":"ping"}`)
		return !strings.Contains(p.Receive(), "RATE_LIMITED") || !strings.Contains(p.Receive(), "pong")
	}, 30*time.Second, 10*time.Millisecond)
}

func TestTurns(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.config.RequestTimeout = 50 * time.Millisecond
	f.handler.api.inFlight = semaphore.NewWeighted(5)
	require.NoError(t, f.handler.api.inFlight.Acquire(t.Context(), 5))
	busy := f.post(`{"query":"{hello}"}`)
	require.Equal(t, http.StatusTooManyRequests, busy.Code)
	require.Equal(t, "1", busy.Header().Get("Retry-After"))
	f.handler.api.inFlight.Release(5)
	f.handler.api.config.RequestTimeout = 30 * time.Second // enough time on a busy machine
	require.Equal(t, http.StatusOK, f.post(`{"query":"{hello}"}`).Code)
}

// While a client reads a field with a high price, its next one with a price waits, over HTTP and over a socket.
func TestFieldsWithAPriceTakeTurns(t *testing.T) {
	f := newFixture(t, nil)
	l := limits(t, func(*limit.Config) {})
	f.handler.api.config.RequestTimeout = 30 * time.Second // enough time on a busy machine
	f.serveWith(t, l)
	begun, free := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(free) })
	t.Cleanup(end)
	go l.ReadInTurn(t.Context(), limit.Client{User: 1}, 1_000_000, func() {
		close(begun)
		<-free
	})
	<-begun
	ask := func(token string, price int) string {
		return f.post(fmt.Sprintf(`{"query":"{echo(n:%d)}"}`, price), func(r *http.Request) {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}).Body.String()
	}
	waiting := make(chan string, 1)
	go func() { waiting <- ask("alice", 500) }()
	p := f.connect(t, modern, `{"Authorization":"Bearer alice"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"{echo(n:501)}"}}`)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.Expect(`{"id":"2","type":"next","payload":{"data":{"hello":"world"}}}`)
	p.Expect(`{"id":"2","type":"complete"}`)
	require.Contains(t, ask("alice", 0), `{"echo":0}`)
	require.Contains(t, ask("", 500), `{"echo":500}`)
	require.Empty(t, waiting)
	end()
	require.Contains(t, <-waiting, `{"echo":500}`)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"echo":501}}}`)
	p.Expect(`{"id":"1","type":"complete"}`)
}

// Subscriptions that wait for their turn do not delay other requests.
func TestSubscriptionsBeginInTurn(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.beginning = semaphore.NewWeighted(1)
	require.NoError(t, f.handler.api.beginning.Acquire(t.Context(), 1))
	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{count(to:1)}"}}`)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"{hello}"}}`)
	p.Expect(`{"id":"2","type":"next","payload":{"data":{"hello":"world"}}}`)
	p.Expect(`{"id":"2","type":"complete"}`)
	f.handler.api.beginning.Release(1)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"count":1}}}`)
	p.Expect(`{"id":"1","type":"complete"}`)
	becomesFree(t, f.handler.api.beginning, 1) // when the subscription has begun
}

// A waiting event stream is refused before proxies give it up. A waiting subscription on a
// socket keeps its place in the queue.
func TestSubscriptionsOverSocketsKeepTheirPlace(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.beginning = semaphore.NewWeighted(1)
	f.handler.api.answerWithin = time.Millisecond
	require.NoError(t, f.handler.api.beginning.Acquire(t.Context(), 1))
	p := f.connect(t, modern, "")
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{count(to:1)}"}}`)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"subscription{count(to:2)}"}}`)
	require.Eventually(t, func() bool { return f.underWay() == 2 }, 30*time.Second, time.Millisecond)
	busy := f.ask(t, http.MethodPost, "", "subscription{count(to:1)}").response
	require.Equal(t, http.StatusServiceUnavailable, busy.StatusCode)
	require.Equal(t, "5", busy.Header.Get("Retry-After"))
	p.Send(`{"id":"2","type":"complete"}`) // a subscription that the client stops leaves the queue
	require.Eventually(t, func() bool { return f.underWay() == 1 }, 30*time.Second, time.Millisecond)
	f.handler.api.beginning.Release(1)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"count":1}}}`)
	p.Expect(`{"id":"1","type":"complete"}`)
}

func TestDeadline(t *testing.T) {
	f := newFixture(t, nil)
	f.handler.api.config.RequestTimeout = 50 * time.Millisecond
	require.Contains(t, f.post(`{"query":"mutation{hold}"}`).Body.String(), `"errors"`)
}

func TestDemandOfAnOperation(t *testing.T) {
	f := newFixture(t, nil)
	const least = limit.LeastCost
	for query, want := range map[string]limit.Demand{
		"{hello}":                                                {Cost: least},
		"mutation{a:set(n:1) b:set(n:2)}":                        {Mutations: 2, Cost: least},
		"mutation{a:logIn b:logIn c:signUp}":                     {Accounts: 3, Cost: least},
		"mutation{set(n:1) changePassword}":                      {Accounts: 1, Mutations: 1, Cost: least},
		"mutation{set(n:1) logIn}":                               {Accounts: 1, Mutations: 1, Cost: least},
		"subscription{news}":                                     {Cost: least},
		"{__schema{queryType{name}}}":                            {Cost: 503},
		"mutation{...f} fragment f on Mutation{a:logIn b:logIn}": {Accounts: 2, Cost: least},
	} {
		operation, errs := f.handler.api.config.Engine.Prepare(t.Context(), exec.Request{Query: query})
		require.Empty(t, errs)
		require.Equal(t, want, demandOf(operation), query)
	}
}

func TestRateLimitedAnswer(t *testing.T) {
	f := newFixture(t, func(c *Config) {
		c.Limits = limits(t, func(c *limit.Config) { c.RateAccounts, c.RateCost = 5, 100_000 })
	})
	require.Equal(t, http.StatusOK, f.post(`{"query":"mutation{a:logIn b:logIn c:logIn d:logIn e:logIn f:logIn}"}`).Code)
	begun := time.Now()
	refused := f.post(`{"query":"mutation{a:logIn b:logIn c:logIn d:logIn e:logIn f:logIn}"}`)
	require.GreaterOrEqual(t, time.Since(begun), refusalPause)
	require.Equal(t, http.StatusTooManyRequests, refused.Code, refused.Body)
	require.Equal(t, "24", refused.Header().Get("Retry-After")) // two of the ten tokens are missing, and one comes back in twelve seconds
	require.Contains(t, refused.Body.String(), `"RATE_LIMITED"`)
	require.Contains(t, refused.Body.String(), `"retryAfter":24`)

	// A request that is refused for another reason counts too.
	for f.post(`{"query":"{"}`).Code != http.StatusTooManyRequests {
	}
	require.Equal(t, http.StatusTooManyRequests, f.post(`{"query":"{hello}"}`).Code)
}

// Event streams share the quotas of sockets and subscriptions, and take no connections from requests.
func TestStreamsCountAsSockets(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.WriteTimeout = time.Minute }) // the test does not read the streams to their end
	f.serveWith(t, limits(t, func(c *limit.Config) {
		c.MaxSocketsPerUser, c.MaxSocketsPerAddress, c.MaxConnections = 1, 2, 13
	}))
	listen := func(token string) (e events, first string) {
		e = f.ask(t, http.MethodPost, token, "subscription{flood}")
		_, first = e.next()
		if strings.Contains(first, "errors") {
			e.response.Body.Close()
		}
		return e, first
	}
	stream, first := listen("alice")
	require.Contains(t, first, `{"data":{"flood":`)
	_, first = listen("alice")
	require.Contains(t, first, "A user may have 1 sockets and streams")
	require.Contains(t, first, `"RATE_LIMITED"`)
	anonymous, first := listen("")
	require.Contains(t, first, `{"data":{"flood":`)
	_, first = listen("")
	require.Contains(t, first, "An address may have 2 sockets and streams")
	anonymous.response.Body.Close()
	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	var conn *websocket.Conn
	require.Eventually(t, func() bool { // until the server has noticed that the client left the stream
		var response *http.Response
		var err error
		conn, response, err = dialer.Dial("ws"+strings.TrimPrefix(f.server.URL, "http"), nil)
		require.NotNil(t, response, "%v", err)
		response.Body.Close()
		return err == nil
	}, 30*time.Second, time.Millisecond)
	defer conn.Close()
	socket := &servertest.Peer{T: t, Conn: conn}
	socket.Send(`{"type":"connection_init"}`)
	socket.Expect(`{"type":"connection_ack"}`)

	f.handler.api.config.Limits = limits(t, func(c *limit.Config) { c.MaxSubscriptionsPerAddress = 1 })
	stream.response.Body.Close()
	stream, first = listen("")
	require.Contains(t, first, `{"data":{"flood":`)
	socket.Send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{news}"}}`)
	require.Contains(t, socket.Receive(), "An address may have 1 subscriptions")
	http.DefaultClient.CloseIdleConnections()
	f.expectRoomFor(t, 9) // the limit of an address, in which neither the socket nor the stream counts
	stream.response.Body.Close()
}

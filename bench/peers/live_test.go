package peers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

const (
	graphqlProtocol   = "graphql-transport-ws"
	centrifugeChannel = "author"

	// liveText occurs once in every event.
	liveText = "hello, everybody"

	subscription = `subscription($after: Cursor) { timelineEvents(after: $after) { __typename ... on TimelinePostAdded { position edge { cursor node { id text createdAt author { handle name } } } } } }`
	createPost   = `{"query":"mutation { createPost(input: {text: \"` + liveText + `\", visibility: PUBLIC}) { post { id } } }"}`

	patience    = 90 * time.Second
	dialing     = 500 // concurrent handshakes
	warmSockets = 200 // to fill the pools
	warmPosts   = 2
	idleTime    = 3 * time.Second // pause before memory is read
)

// BenchmarkLive measures one server process with many live subscribers of one author:
//
//   - how fast they subscribe for the first time, when Tideline builds their inboxes, and once more, and how
//     many attempts fail;
//   - the memory of an idle subscriber;
//   - the time of a post from the start of its call to the first, the median and the last subscriber;
//   - how many deliveries per second a burst of posts makes, and the processor time of a delivery.
//
// Tideline writes each post to PostgreSQL, pushes it into the inboxes in Redis and decides who may see it.
// gqlgen, centrifuge and gorilla only broadcast.
//
// PEER_PROFILE names a file for CPU profiles of tideline: .1 is of the start, .2 of the first subscriptions,
// .3 of the deliveries, and the file itself of the renewed subscriptions. Beside them are the heap and the
// goroutines at the end of each phase.
//
// It needs twice as many open files as subscribers.
func BenchmarkLive(b *testing.B) {
	for range *rounds {
		for _, n := range sizes(b, *subscribers) {
			for _, p := range livePeers() {
				b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
					measured.report(b, "live, subscribers", strconv.Itoa(n), p.name, measureLive(b, p, n, *livePosts, idleTime))
				})
			}
		}
	}
}

// BenchmarkReconnect measures how long it takes until all subscribers whose sockets broke are subscribed
// again, each with its cursor, and how many transactions that takes.
func BenchmarkReconnect(b *testing.B) {
	for range *rounds {
		for _, n := range sizes(b, *subscribers) {
			for _, p := range peersOf() {
				b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
					measured.report(b, "reconnect, subscribers", strconv.Itoa(n), p.name, measureReconnect(b, p, n))
				})
			}
		}
	}
}

func livePeers() []peer { return peersOf("gqlgen", "centrifuge", "gorilla") }

func measureLive(tb testing.TB, p peer, n, posts int, settle time.Duration) []figure {
	stores := storagetest.Real(tb)
	seedFollowers(tb, stores, n)
	running, stop := p.start(tb, stores)
	defer stop()
	warm := subscribeAll(tb, p, running, min(n, warmSockets), nil)
	for range warmPosts {
		warm.post(tb, 1)
	}
	warm.close(tb)

	running.endPhase(p)
	before, began := running.resident(tb), time.Now()
	c := subscribeAll(tb, p, running, n, nil)
	defer c.close(tb)
	connected := time.Since(began)
	time.Sleep(settle)
	idle := (running.resident(tb) - before) / float64(n)
	running.endPhase(p)

	c.post(tb, warmPosts)
	m := startMeter(tb, stores, running)
	var first, median, last []time.Duration
	for range posts {
		times := c.post(tb, 1)
		first, median, last = append(first, times[0]), append(median, times[len(times)/2]), append(last, times[len(times)-1])
	}
	times := c.post(tb, posts)
	burst := times[len(times)-1]
	ms := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2].Microseconds()) / 1000
	}
	figures := []figure{{"first ms", ms(first)}, {"median ms", ms(median)}, {"last ms", ms(last)}, {"deliveries/s", float64(len(times)) / burst.Seconds()}}
	figures = append(figures, m.figures(2*posts*n)...)
	running.endPhase(p)
	c.close(tb)
	began = time.Now()
	again := subscribeAll(tb, p, running, n, nil)
	defer again.close(tb)
	return append(figures, figure{"KB idle", idle}, figure{"first connects/s", float64(n) / connected.Seconds()},
		figure{"connects/s", float64(n) / time.Since(began).Seconds()}, figure{"failed", float64(c.failed.Load() + again.failed.Load())})
}

func measureReconnect(tb testing.TB, p peer, n int) []figure {
	stores := storagetest.Real(tb)
	seedFollowers(tb, stores, n)
	running, stop := p.start(tb, stores)
	defer stop()
	c := subscribeAll(tb, p, running, n, nil)
	c.post(tb, 1)
	c.close(tb)
	transactions := commits(tb, stores)
	m, began := startMeter(tb, stores, running), time.Now()
	again := subscribeAll(tb, p, running, n, c.positions)
	took := time.Since(began)
	figures := append([]figure{{"reconnects/s", float64(n) / took.Seconds()}}, m.figures(n)...)
	figures = append(figures, figure{"transactions", float64(commits(tb, stores)-transactions) / float64(n)}, figure{"failed", float64(again.failed.Load())})
	again.close(tb)
	return figures
}

func commits(tb testing.TB, stores *storage.Stores) (n int64) {
	time.Sleep(1100 * time.Millisecond) // the statistics are delayed
	require.NoError(tb, stores.SQL.QueryRowContext(tb.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
	return n
}

// seedFollowers creates user 1 and n followers, all signed in.
func seedFollowers(tb testing.TB, stores *storage.Stores, n int) {
	for _, statement := range []string{
		`INSERT INTO users (id, handle, name, password_hash, fan_out_mode_since, created_at) SELECT g, 'user' || g, 'User ' || g, '-', 0, now() FROM generate_series(1, $1 + 1) g`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT g + 1, 1, now() FROM generate_series(1, $1) g`,
		`INSERT INTO sessions (token_hash, user_id, expires_at, created_at) SELECT sha256(('token' || g)::bytea), g, now() + interval '1 day', now() FROM generate_series(1, $1 + 1) g`,
		`UPDATE users SET follower_count = $1 WHERE id = 1`,
	} {
		_, err := stores.SQL.ExecContext(tb.Context(), statement, n)
		require.NoError(tb, err)
	}
	_, err := stores.SQL.ExecContext(tb.Context(), "VACUUM ANALYZE")
	require.NoError(tb, err)
}

// crowd has the subscribers. Each has a socket, and opens it again when it breaks.
type crowd struct {
	peer      peer
	process   process
	positions []string      // position of each subscriber to resume from
	slots     chan struct{} // limits concurrent handshakes
	done      chan struct{}
	readers   sync.WaitGroup
	failed    atomic.Int64 // sockets that were refused or broke

	mu     sync.Mutex
	conns  map[*websocket.Conn]struct{}
	closed bool

	clock    time.Time
	places   atomic.Int64 // free places in arrivals
	pending  atomic.Int64 // arrivals not yet written
	arrivals []time.Duration
	all      chan struct{}
}

// subscribeAll subscribes n clients, and returns when the server has n subscriptions.
func subscribeAll(tb testing.TB, p peer, running process, n int, positions []string) *crowd {
	c := &crowd{
		peer: p, process: running, positions: make([]string, n), slots: make(chan struct{}, dialing),
		done: make(chan struct{}), conns: map[*websocket.Conn]struct{}{},
	}
	copy(c.positions, positions)
	for i := range n {
		c.readers.Go(func() { c.read(i) })
	}
	running.awaitSubscriptions(tb, n)
	return c
}

// close closes the sockets and waits until the server has noticed.
func (c *crowd) close(tb testing.TB) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	close(c.done)
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.readers.Wait()
	c.process.awaitSubscriptions(tb, 0)
}

// awaitSubscriptions waits until the process reports n subscriptions.
func (p process) awaitSubscriptions(tb testing.TB, n int) {
	require.Eventually(tb, func() bool {
		has, told := p.metrics()["tideline_live_subscriptions"]
		return told && has == float64(n)
	}, patience, 50*time.Millisecond) // an answer takes some milliseconds
}

// metrics returns the metrics of the process, or none if it does not answer.
func (p process) metrics() map[string]float64 {
	response, err := http.Get("http://" + p.address + "/metrics")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = v
		}
	}
	return all
}

// read subscribes and reads events, and repeats that after a failure.
func (c *crowd) read(i int) {
	var message bytes.Buffer
	for {
		conn, err := c.open(i)
		if err == nil {
			c.events(i, conn, &message)
		}
		c.mu.Lock()
		closed := c.closed
		if conn != nil {
			conn.Close()
			delete(c.conns, conn)
		}
		c.mu.Unlock()
		if closed {
			return
		}
		c.failed.Add(1)
		select {
		case <-c.done:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *crowd) open(i int) (*websocket.Conn, error) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	dialer := websocket.Dialer{
		Subprotocols: []string{graphqlProtocol}, ReadBufferSize: 1024, WriteBufferSize: 512, HandshakeTimeout: patience, EnableCompression: *deflate,
	}
	conn, _, err := dialer.Dial("ws://"+c.process.address+"/graphql", nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.conns[conn] = struct{}{}; c.closed {
		conn.Close()
	}
	c.mu.Unlock()
	for _, greeting := range c.peer.greetings(i, c.positions[i]) {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(greeting)); err != nil {
			return conn, err
		}
	}
	return conn, nil
}

// greetings returns the messages with which a client of the peer subscribes.
func (p peer) greetings(i int, position string) []string {
	switch p.role {
	case "gorilla":
		return nil
	case "centrifuge":
		return []string{`{"id":1,"connect":{}}`, `{"id":2,"subscribe":{"channel":"` + centrifugeChannel + `"}}`}
	}
	after := "null"
	if position != "" {
		after = strconv.Quote(position)
	}
	return []string{
		fmt.Sprintf(`{"type":"connection_init","payload":{"Authorization":"Bearer token%d"}}`, i+2),
		fmt.Sprintf(`{"id":"1","type":"subscribe","payload":{"query":%q,"variables":{"after":%s}}}`, subscription, after),
	}
}

// events reads a socket until it breaks or the server ends the subscription. centrifuge may
// write several events in one message.
func (c *crowd) events(i int, conn *websocket.Conn, message *bytes.Buffer) {
	for {
		_, in, err := conn.NextReader()
		if err != nil {
			return
		}
		message.Reset()
		if _, err := message.ReadFrom(in); err != nil {
			return
		}
		now := time.Now()
		text := message.Bytes()
		if n := bytes.Count(text, []byte(liveText)); n > 0 {
			_, position, _ := bytes.Cut(text, []byte(`"position":"`))
			position, _, _ = bytes.Cut(position, []byte(`"`))
			if string(position) != c.positions[i] {
				c.positions[i] = string(position)
			}
			for range n {
				c.arrived(now)
			}
			continue
		}
		switch {
		case bytes.Equal(text, []byte("{}")): // centrifuge's ping
			err = conn.WriteMessage(websocket.TextMessage, text)
		case bytes.HasPrefix(text, []byte(`{"type":"ping"`)):
			err = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"pong"}`))
		case bytes.Contains(text, []byte(`"type":"error"`)), bytes.Contains(text, []byte(`"type":"complete"`)):
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *crowd) arrived(at time.Time) {
	place := c.places.Add(-1)
	if place < 0 {
		return // a repeated event after a socket broke
	}
	c.arrivals[place] = at.Sub(c.clock)
	if c.pending.Add(-1) == 0 {
		close(c.all)
	}
}

// post creates posts, one call after the other, and returns the sorted times until they
// have arrived at all subscribers.
func (c *crowd) post(tb testing.TB, posts int) []time.Duration {
	c.arrivals, c.all = make([]time.Duration, posts*len(c.positions)), make(chan struct{})
	c.clock = time.Now()
	c.pending.Store(int64(len(c.arrivals)))
	c.places.Store(int64(len(c.arrivals))) // last, since it admits arrivals
	for range posts {
		request, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, "http://"+c.process.address+"/graphql", strings.NewReader(createPost))
		require.NoError(tb, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer token1")
		response, err := http.DefaultClient.Do(request)
		require.NoError(tb, err)
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		require.NoError(tb, err)
		require.True(tb, response.StatusCode == http.StatusOK && !bytes.Contains(answer, []byte(`"errors"`)), "%s: %s", response.Status, answer)
	}
	select {
	case <-c.all:
	case <-time.After(patience):
		require.Failf(tb, "posts are missing", "%d deliveries, %d sockets failed", c.pending.Load(), c.failed.Load())
	}
	slices.Sort(c.arrivals)
	return c.arrivals
}

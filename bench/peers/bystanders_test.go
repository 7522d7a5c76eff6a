package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/feed/ids"
	"tideline/storage"
	"tideline/storage/storagetest"
)

const (
	pace      = 200 * time.Millisecond // interval of a bystander's pages
	quietTime = 15 * time.Second
	abuseTime = time.Minute

	abuserSockets       = 3
	abuserSubscriptions = 50 // per socket
)

// BenchmarkBystanders measures how long 64 users wait for their pages. Each requests five a second, first
// while nothing else happens on the server and then under one of the loads below. A late page delays the next
// one of the same user, and the delay counts too.
//
//   - resync: the server's pub/sub connections break, and all live subscriptions look for what they missed,
//     until the last one has finished. It needs as many open files as subscribers in each of two processes.
//   - abuse: one account holds 150 subscriptions of 29 aliased unread counts with a heartbeat each second,
//     and replaces each one at once when it is refused or ended.
//   - ranked, suggested, tagged, liked, searched, nested, anonymous, marked: one account, or an address without one,
//     requests fields that return little and read much. It uses 16 connections and as many aliases as are
//     allowed, and repeats each request as soon as it is answered, or 10 ms after it is refused.
func BenchmarkBystanders(b *testing.B) {
	for range *rounds {
		for _, p := range peersOf() {
			for _, n := range sizes(b, *subscribers) {
				b.Run(fmt.Sprintf("resync/%s/%d", p.name, n), func(b *testing.B) {
					measured.report(b, "bystanders of a resync, subscribers", strconv.Itoa(n), p.name, measureResync(b, p, n, quietTime))
				})
			}
			b.Run("abuse/"+p.name, func(b *testing.B) {
				measured.report(b, "bystanders of an abuse, subscriptions", strconv.Itoa(abuserSockets*abuserSubscriptions), p.name,
					measureAbuse(b, p, quietTime, abuseTime))
			})
			for _, a := range fieldAbuses {
				b.Run(a.name+"/"+p.name, func(b *testing.B) {
					measured.report(b, "bystanders of an abuse, fields", a.name, p.name, measureFieldAbuse(b, p, a, quietTime, abuseTime))
				})
			}
		}
	}
}

func measureResync(tb testing.TB, p peer, n int, quiet time.Duration) []figure {
	stores := storagetest.Real(tb)
	seedFollowers(tb, stores, n+pageReaders)
	seedPage(tb, stores)
	running, stop := p.start(tb, stores)
	defer stop()
	c := subscribeAll(tb, p, running, n, nil)
	defer c.close(tb)
	c.post(tb, warmPosts)
	readers := running.bystanders(tb, n+1)
	before := readers.waits(tb, func() { time.Sleep(quiet) })
	var took time.Duration
	during := readers.waits(tb, func() {
		began := time.Now()
		require.NoError(tb, stores.Redis.Do(tb.Context(), "client", "kill", "type", "pubsub").Err())
		running.awaitResyncs(tb, n)
		took = time.Since(began)
	})
	c.post(tb, 1) // waits until all subscribers are connected
	return append(besides(before, during), figure{"resync s", took.Seconds()}, figure{"pages", float64(len(during))},
		figure{"failed", float64(c.failed.Load())})
}

// awaitResyncs waits until at least n subscriptions were told to look for what they missed,
// and all of them have finished.
func (p process) awaitResyncs(tb testing.TB, n int) {
	require.Eventually(tb, func() bool {
		metrics := p.metrics()
		return metrics["tideline_live_resyncs_total"] >= float64(n) &&
			metrics[`tideline_streams{state="waiting"}`]+metrics[`tideline_streams{state="catching_up"}`] == 0
	}, patience, 250*time.Millisecond) // an answer takes some milliseconds
}

func measureAbuse(tb testing.TB, p peer, quiet, length time.Duration) []figure {
	stores := storagetest.Real(tb)
	seedFollowers(tb, stores, 1+pageReaders)
	seedPage(tb, stores)
	p.limits = true
	running, stop := p.start(tb, stores)
	defer stop()
	readers := running.bystanders(tb, 2)
	before := readers.waits(tb, func() { time.Sleep(quiet) })
	a := &abuser{address: running.address, done: make(chan struct{})}
	var sockets sync.WaitGroup
	for range abuserSockets {
		sockets.Go(a.run)
	}
	m := startMeter(tb, stores, running)
	during := readers.waits(tb, func() { time.Sleep(length) })
	close(a.done)
	sockets.Wait()
	figures := append(besides(before, during), figure{"heartbeats", float64(a.beats.Load())}, figure{"refused", float64(a.refused.Load())})
	return append(figures, m.figures(len(during))...)
}

// fieldAbuse is a load with a field that returns little and reads much.
type fieldAbuse struct {
	name, operation, field string
	token                  string // empty: nobody is signed in
}

const abuserConnections = 16

var fieldAbuses = []fieldAbuse{
	{"ranked", "query", "timeline(first: 1, order: RANKED) { nodes { id } }", "token1"},
	{"suggested", "query", "suggestedUsers(first: 1) { id }", "token1"},
	{"tagged", "query", `taggedPosts(tag: "tide", first: 1) { nodes { id } }`, "token1"},
	{"liked", "query", "viewer { likedPosts(first: 1) { nodes { id } } }", "token1"},
	{"searched", "query", `users(query: "another 99", first: 1) { nodes { id } }`, "token1"},
	{"nested", "query", "users(first: 20) { nodes { id followers(first: 1) { nodes { id } } } }", "token1"},
	{"anonymous", "query", `users(query: "another 99", first: 1) { nodes { id } }`, ""},
	{"marked", "mutation", "markTimelineRead(input: {upTo: %q}) { viewer { id a: unreadCount b: unreadCount } }", "token1"},
}

func measureFieldAbuse(tb testing.TB, p peer, a fieldAbuse, quiet, length time.Duration) []figure {
	stores := storagetest.Real(tb)
	seedFollowers(tb, stores, 1+pageReaders)
	seedPage(tb, stores)
	seedAbuse(tb, stores)
	p.limits = true
	running, stop := p.start(tb, stores)
	defer stop()
	readers := running.bystanders(tb, 2)
	before := readers.waits(tb, func() { time.Sleep(quiet) })
	ask := newAsker(tb, running, a)
	var refused, answered atomic.Int64
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range abuserConnections {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if status, _ := ask(); status == http.StatusOK {
					answered.Add(1)
				} else {
					refused.Add(1)
					time.Sleep(10 * time.Millisecond) // a refusal costs the abuser's processor time, too
				}
			}
		})
	}
	m := startMeter(tb, stores, running)
	during := readers.waits(tb, func() { time.Sleep(length) })
	close(done)
	asking.Wait()
	figures := append(besides(before, during), figure{"answered", float64(answered.Load())}, figure{"refused", float64(refused.Load())})
	return append(figures, m.figures(len(during))...)
}

// newAsker returns a function that requests the field once, with as many aliases as the server allows.
func newAsker(tb testing.TB, running process, a fieldAbuse) func() (status int, body []byte) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		MaxIdleConnsPerHost: abuserConnections,
		DialContext:         (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext,
	}}
	tb.Cleanup(client.CloseIdleConnections)
	send := func(query string) (int, []byte) {
		body, err := json.Marshal(map[string]string{"query": query})
		require.NoError(tb, err)
		request, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, "http://"+running.address+"/graphql", bytes.NewReader(body))
		require.NoError(tb, err)
		request.Header.Set("Content-Type", "application/json")
		if a.token != "" {
			request.Header.Set("Authorization", "Bearer "+a.token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, nil
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, text
	}
	field := a.field
	if strings.Contains(field, "%q") {
		_, page := send("{ timeline(first: 1) { edges { cursor } } }")
		found := regexp.MustCompile(`"cursor":"([^"]+)"`).FindSubmatch(page)
		require.NotNil(tb, found, string(page))
		field = fmt.Sprintf(field, found[1])
	}
	for aliases := 30; aliases > 0; aliases-- {
		var query strings.Builder
		query.WriteString(a.operation + " {")
		taken := strings.Count(field, "a: ") + strings.Count(field, "b: ")
		for i := range aliases / (1 + taken) {
			fmt.Fprintf(&query, " f%d: %s", i, field)
		}
		query.WriteString(" }")
		if _, text := send(query.String()); !bytes.Contains(text, []byte("QUERY_TOO_COMPLEX")) {
			return func() (int, []byte) { return send(query.String()) }
		}
	}
	require.Fail(tb, "the server does not take the field once", field)
	return nil
}

// seedAbuse gives user 1 as many posts as an inbox can have, and as many likes of posts that user 1 may no
// longer see, which also fill a tag. For suggestions it makes everybody follow many users.
func seedAbuse(tb testing.TB, stores *storage.Stores) {
	first := ids.At(time.Now().Add(-2 * 365 * 24 * time.Hour))
	for _, statement := range []string{
		`INSERT INTO posts (id, author_id, text, visibility, edited_at, like_count) SELECT $1::bigint + g * 4096, 1, 'One of many.', 'PUBLIC', 0, 0 FROM generate_series(1, 600) g`,
		`INSERT INTO posts (id, author_id, text, visibility, edited_at, like_count) SELECT $1::bigint + g * 4096, 2, 'Once public. #tide', 'PRIVATE', 0, 0 FROM generate_series(1001, 51000) g`,
		`INSERT INTO likes (user_id, post_id) SELECT 1, id FROM posts WHERE author_id = 2 AND id > $1::bigint`,
		`INSERT INTO post_tags (tag, post_id) SELECT 'tide', id FROM posts WHERE author_id = 2 AND id > $1::bigint`,
		`INSERT INTO users (id, handle, name, password_hash, fan_out_mode_since, created_at) SELECT g, 'more' || g, 'Another ' || g, '-', 0, now() FROM generate_series(1001, 101000) g WHERE $1::bigint > 0`,
		`INSERT INTO user_words (user_id, word) SELECT g, word::bytea FROM generate_series(1001, 101000) g, unnest(ARRAY['another', g::text, 'more' || g]) word WHERE $1::bigint > 0`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT 1, g, now() FROM generate_series(1001, 1060) g WHERE $1::bigint > 0`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT f, f + 100 + g, now() FROM generate_series(1001, 1060) f, generate_series(1, 200) g WHERE $1::bigint > 0`,
	} {
		_, err := stores.SQL.ExecContext(tb.Context(), statement, first)
		require.NoError(tb, err, statement)
	}
	_, err := stores.SQL.ExecContext(tb.Context(), "VACUUM ANALYZE")
	require.NoError(tb, err)
}

// besides compares the sorted waits before and during a load.
func besides(before, during []time.Duration) []figure {
	ms := func(waits []time.Duration, percent int) float64 {
		return float64(waits[len(waits)*percent/100].Microseconds()) / 1000
	}
	return []figure{
		{"quiet p50 ms", ms(before, 50)}, {"quiet p99 ms", ms(before, 99)},
		{"p50 ms", ms(during, 50)}, {"p99 ms", ms(during, 99)},
		{"most ms", float64(during[len(during)-1].Microseconds()) / 1000},
	}
}

// seedPage creates as many posts of user 1 as a page has.
func seedPage(tb testing.TB, stores *storage.Stores) {
	writePosts(tb, stores, 20, "Twenty of these make a page.", func(int) int64 { return 1 })
	_, err := stores.SQL.ExecContext(tb.Context(),
		`UPDATE users SET last_post_id = (SELECT max(id) FROM posts WHERE author_id = users.id), post_count = 20, public_post_count = 20 WHERE id = 1`)
	require.NoError(tb, err)
}

// bystanders are users who request pages, each over one permanent connection.
type bystanders []*pageClient

// bystanders returns clients of the users after the given one, each at a separate address.
func (p process) bystanders(tb testing.TB, after int) bystanders {
	all := make(bystanders, pageReaders)
	for i := range all {
		all[i] = p.dialFrom(tb, net.IPv4(127, 0, 1, byte(1+i)), after+i)
		tb.Cleanup(func() { all[i].Close() })
	}
	var asked atomic.Int64
	askAll(tb, all, func() bool { return asked.Add(1) <= warmUp })
	return all
}

// waits returns how long the bystanders waited for their pages until do returned, sorted.
func (all bystanders) waits(tb testing.TB, do func()) []time.Duration {
	done := make(chan struct{})
	var mu sync.Mutex
	var waits []time.Duration
	var running sync.WaitGroup
	began, failures := time.Now(), make([]error, len(all))
	for i, c := range all {
		running.Go(func() {
			due := began.Add(pace * time.Duration(i) / time.Duration(len(all)))
			for {
				time.Sleep(time.Until(due))
				if failures[i] = c.page(20); failures[i] != nil {
					return
				}
				wait := time.Since(due)
				mu.Lock()
				waits = append(waits, wait)
				mu.Unlock()
				due = due.Add(pace)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	do()
	close(done)
	running.Wait()
	for _, err := range failures {
		require.NoError(tb, err)
	}
	slices.Sort(waits)
	return waits
}

// abuser is user 1, who takes as much as the server allows.
type abuser struct {
	address        string
	done           chan struct{}
	beats, refused atomic.Int64
}

// run keeps one socket full of subscriptions.
func (a *abuser) run() {
	for {
		_ = a.fill() // a socket that breaks is opened again
		select {
		case <-a.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (a *abuser) fill() error {
	dialer := websocket.Dialer{
		Subprotocols: []string{graphqlProtocol}, HandshakeTimeout: patience,
		NetDialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext,
	}
	conn, _, err := dialer.Dial("ws://"+a.address+"/graphql", nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-a.done:
			conn.Close()
		case <-ended:
		}
	}()
	var counts strings.Builder
	for i := range 29 {
		fmt.Fprintf(&counts, " a%d: unreadCount", i)
	}
	begun := 0
	begin := func() error {
		begun++
		return conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil,
			`{"id":"%d","type":"subscribe","payload":{"query":"subscription { timelineEvents(heartbeat: 1) { ... on TimelineHeartbeat {%s } } }"}}`, begun, &counts))
	}
	if err := conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_init","payload":{"Authorization":"Bearer token1"}}`)); err != nil {
		return err
	}
	for range abuserSubscriptions {
		if err := begin(); err != nil {
			return err
		}
	}
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		if bytes.Contains(message, []byte("RATE_LIMITED")) {
			a.refused.Add(1)
		}
		switch {
		case bytes.Contains(message, []byte(`"a28":`)):
			a.beats.Add(1)
		case bytes.HasPrefix(message, []byte(`{"type":"ping"`)):
			err = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"pong"}`))
		case bytes.Contains(message, []byte(`"type":"error"`)), bytes.Contains(message, []byte(`"type":"complete"`)):
			err = begin()
		}
		if err != nil {
			return err
		}
	}
}

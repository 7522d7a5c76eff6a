package resume

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/feed/ids"
	"tideline/live"
	"tideline/storage/storagetest"
)

var (
	benchClients = flag.Int("clients", 1000, "live followers of BenchmarkLive")
	benchEvents  = flag.Int("events", 5, "posts that BenchmarkLive sends them")
	benchDeflate = flag.Bool("deflate", false, "whether they and the server agree to permessage-deflate")
)

// followQuery is the subscription of the benchmark's clients.
const followQuery = `{"id":"1","type":"subscribe","payload":{"query":"subscription($after: Cursor) { timelineEvents(after: $after) { __typename ... on TimelinePostAdded { position edge { cursor node { id text createdAt author { handle name } } } } } }","variables":{"after":%s}}}`

// BenchmarkLive measures one server process, built without the race detector, with
// many live followers of one author: how fast they connect, what an idle one costs,
// how long a post takes to the first and the last, and, when all reconnect with
// their cursors at once, how long that takes and how many transactions. The
// processor time of the server is counted for each connection and each delivery:
// that hardly depends on what else the machine does. Beside it,
// in the same run, it measures the floor: gorilla alone broadcasts a prepared
// message to as many sockets.
//
// It needs twice as many open files as clients.
func BenchmarkLive(b *testing.B) {
	ctx, n := b.Context(), *benchClients
	fast := filepath.Join(b.TempDir(), "tideline")
	out, err := exec.Command("go", "build", "-o", fast, "tideline").CombinedOutput()
	require.NoError(b, err, string(out))
	stores := storagetest.Real(b)
	server := benchServer(b, fast, settings(storagetest.Config(stores)))
	for _, statement := range []string{
		`INSERT INTO users (id, handle, name, password_hash, fan_out_mode_since, created_at) SELECT g, 'u' || g, 'User', '-', 0, now() FROM generate_series(1, $1 + 1) g`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT g + 1, 1, now() FROM generate_series(1, $1) g`,
		`INSERT INTO sessions (token_hash, user_id, expires_at, created_at) SELECT sha256(('token' || (g + 1))::bytea), g + 1, now() + interval '1 day', now() FROM generate_series(1, $1) g`,
		`UPDATE users SET follower_count = $1 WHERE id = 1`,
	} {
		_, err := stores.SQL.ExecContext(ctx, statement, n)
		require.NoError(b, err)
	}
	warm := dialAll(b, server.url, min(n, 200), nil) // so that the pools are filled
	server.holds(b, min(n, 200))
	warm.close()
	server.holds(b, 0)

	before, busy, started := server.rss(b), server.busy(b), time.Now()
	c := dialAll(b, server.url, n, nil)
	server.holds(b, n)
	b.ReportMetric(float64(n)/time.Since(started).Seconds(), "connects/s")
	b.ReportMetric(float64((server.busy(b)-busy).Microseconds())/float64(n), "server-µs/connect")
	time.Sleep(3 * time.Second)
	b.ReportMetric(float64(server.rss(b)-before)/float64(n)/1024, "KB/idle")

	users := make([]int64, n)
	for i := range users {
		users[i] = int64(i + 2)
	}
	publisher := live.NewPublisher(stores.Redis, stores.Sharded)
	ids, err := ids.Open(ctx, ids.Config{DB: stores.DB})
	require.NoError(b, err)
	post := func() {
		id, err := ids.Next()
		require.NoError(b, err)
		require.NoError(b, stores.DB.Post.Create().SetID(id).SetAuthorID(1).SetText("hello, everybody").SetVisibility("PUBLIC").Exec(ctx))
		c.clock = time.Now()
		reached, err := publisher.Publish(ctx, live.Event{Kind: live.Added, Post: id, Author: 1}, users)
		require.NoError(b, err)
		require.Equal(b, n, reached)
	}
	var first, median, last []time.Duration
	busy = server.busy(b)
	for range *benchEvents {
		c.expect(n)
		post()
		times := c.wait(b)
		first, median, last = append(first, times[0]), append(median, times[n/2]), append(last, times[n-1])
	}
	b.ReportMetric(float64((server.busy(b)-busy).Microseconds())/float64(n**benchEvents), "server-µs/delivery")
	sample := c.sample()
	report := func(name string, d []time.Duration) {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, name)
	}
	report("first-ms", first)
	report("median-ms", median)
	report("last-ms", last)

	storm := min(n, 2000)
	positions := c.positions()
	c.close()
	server.holds(b, 0)
	transactions := commits(b, ctx, stores.SQL.QueryRowContext(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan)
	started = time.Now()
	again := dialAll(b, server.url, storm, positions)
	server.holds(b, storm)
	b.ReportMetric(time.Since(started).Seconds(), "storm-s")
	after := commits(b, ctx, stores.SQL.QueryRowContext(ctx, `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan)
	b.ReportMetric(float64(after-transactions)/float64(storm), "storm-transactions/client")
	again.close()

	floorLast, floorBusy := floor(b, n, sample)
	report("floor-last-ms", floorLast)
	b.ReportMetric(float64(floorBusy.Nanoseconds())/1000/float64(n**benchEvents), "floor-µs/delivery")
	b.ReportMetric(0, "ns/op")
}

func commits(b *testing.B, ctx context.Context, scan func(...any) error) (n int64) {
	b.Helper()
	time.Sleep(1100 * time.Millisecond) // the statistics lag behind
	require.NoError(b, scan(&n))
	return n
}

// benched is a server process without the race detector.
type benched struct {
	url string
	cmd *exec.Cmd
}

func benchServer(b *testing.B, path string, env []string) benched {
	b.Helper()
	cmd := exec.Command(path, "server", "--addr=127.0.0.1:0")
	cmd.Env = append(os.Environ(), env...)
	if *benchDeflate {
		cmd.Env = append(cmd.Env, "TIDELINE_COMPRESS_SOCKETS=on")
	}
	out, err := cmd.StderrPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	text := make([]byte, 0, 4096)
	buffer := make([]byte, 4096)
	for {
		n, err := out.Read(buffer)
		require.NoError(b, err, string(text))
		text = append(text, buffer[:n]...)
		if found := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).Find(text); found != nil {
			go func() {
				for err == nil {
					_, err = out.Read(buffer)
				}
			}()
			return benched{string(found), cmd}
		}
	}
}

// rss returns the resident memory of the process in bytes.
func (s benched) rss(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(b, err)
	kb, err := strconv.ParseInt(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindStringSubmatch(string(status))[1], 10, 64)
	require.NoError(b, err)
	return kb << 10
}

// busy returns the processor time that the process has used, in steps of 10 ms.
func (s benched) busy(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	require.NoError(b, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// holds waits until the process has so many subscriptions.
func (s benched) holds(b *testing.B, n int) {
	b.Helper()
	want := fmt.Sprintf("\ntideline_live_subscriptions %d\n", n)
	require.Eventually(b, func() bool {
		response, err := http.Get(s.url + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(text), want)
	}, patience, 20*time.Millisecond)
}

// clients are sockets that record when something arrives.
type clients struct {
	conns []*websocket.Conn
	clock time.Time

	mu       sync.Mutex
	arrivals []time.Duration
	pending  int
	all      chan struct{}
	data     []byte
	last     map[int]string
}

func dialAll(b *testing.B, url string, n int, after map[int]string) *clients {
	b.Helper()
	c := &clients{conns: make([]*websocket.Conn, n), last: map[int]string{}}
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, ReadBufferSize: 1024, WriteBufferSize: 512, HandshakeTimeout: time.Minute, EnableCompression: *benchDeflate}
	var g errgroup.Group
	g.SetLimit(64)
	for i := range n {
		g.Go(func() error {
			conn, _, err := dialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/graphql", nil)
			if err != nil {
				return err
			}
			c.conns[i] = conn
			cursor := "null"
			if after != nil {
				cursor = strconv.Quote(after[i])
			}
			for _, message := range []string{
				fmt.Sprintf(`{"type":"connection_init","payload":{"Authorization":"Bearer token%d"}}`, i+2),
				fmt.Sprintf(followQuery, cursor),
			} {
				if err := conn.WriteMessage(websocket.TextMessage, []byte(message)); err != nil {
					return err
				}
			}
			go c.read(i, conn)
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return c
}

var positionIn = regexp.MustCompile(`"position":"([^"]+)"`)

func (c *clients) read(i int, conn *websocket.Conn) {
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			return
		}
		now := time.Now()
		if !strings.HasPrefix(string(data), `{"type":"next"`) {
			continue
		}
		c.mu.Lock()
		if found := positionIn.FindSubmatch(data); found != nil {
			c.last[i] = string(found[1])
		}
		c.data = data
		c.arrivals = append(c.arrivals, now.Sub(c.clock))
		if c.pending--; c.pending == 0 {
			close(c.all)
		}
		c.mu.Unlock()
	}
}

func (c *clients) expect(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrivals, c.pending, c.all = nil, n, make(chan struct{})
}

func (c *clients) wait(b *testing.B) []time.Duration {
	b.Helper()
	select {
	case <-c.all:
	case <-time.After(patience):
		b.Fatalf("%d have not arrived", c.pending)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.arrivals)
	return c.arrivals
}

// sample returns the last message of one of them.
func (c *clients) sample() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.data
}

func (c *clients) positions() map[int]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *clients) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// floor measures how long a prepared message, a copy of one from the server, takes
// to the last of n sockets through nothing but gorilla, and the processor time of
// whoever writes.
func floor(b *testing.B, n int, sample []byte) (last []time.Duration, busy time.Duration) {
	b.Helper()
	accepted := make(chan *websocket.Conn, n)
	upgrader := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024, Subprotocols: []string{"graphql-transport-ws"}}
	s := &http.Server{Addr: "127.0.0.1:0", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			accepted <- conn
		}
	})}
	url := listen(b, s)
	c := dialAll(b, url, n, nil)
	defer c.close()
	conns := make([]*websocket.Conn, n)
	for i := range conns {
		conns[i] = <-accepted
		defer conns[i].Close()
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, sample)
	require.NoError(b, err)
	for range *benchEvents {
		c.expect(n)
		c.clock = time.Now()
		runtime.LockOSThread()
		before := threadBusy(b)
		for _, conn := range conns {
			require.NoError(b, conn.WritePreparedMessage(message))
		}
		busy += threadBusy(b) - before
		runtime.UnlockOSThread()
		last = append(last, c.wait(b)[n-1])
	}
	return last, busy
}

// threadBusy returns the processor time that the thread has used.
func threadBusy(b *testing.B) time.Duration {
	b.Helper()
	const ofThread = 1 // RUSAGE_THREAD of Linux
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(ofThread, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func listen(b *testing.B, s *http.Server) (url string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	go func() { _ = s.Serve(l) }()
	b.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}

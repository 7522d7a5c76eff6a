package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

var (
	servedRounds = flag.Int("rounds", 1, "how often BenchmarkPageServed goes round its servers")
	servedBeside = flag.String("beside", "", "an older test binary of this package, whose server BenchmarkPageServed also measures")
	servedConns  = flag.String("conns", "1,16,64", "connections of BenchmarkPageServed")
)

// servedRole makes the test binary one of the servers of BenchmarkPageServed, and
// servedProfile is where it writes a CPU profile of itself.
const (
	servedRole    = "PAGE_SERVER"
	servedProfile = "PAGE_PROFILE"
)

// servedReaders is how many users read, each through the same connection all the time.
const servedReaders = 64

// servedWarmUp is how many pages are read before the measurement.
const servedWarmUp = 2000

// BenchmarkPageServed measures a home page of 20 posts with their authors over HTTP, on
// PostgreSQL and redis-server. It asks processes one after the other, with the same
// client and stores: tideline; its floor, which is a range of the sorted set, the posts
// and authors by key, and JSON written by hand; and gqlgen's own server with the posts
// from memory. It reports requests a second, and the processor time that a request takes
// of the server, of PostgreSQL and of Redis.
//
// The binary of another version, of "go test -c", is measured in turn with -beside.
// PAGE_PROFILE names a file for a CPU profile of tideline.
func BenchmarkPageServed(b *testing.B) {
	stores := storagetest.Real(b)
	seedPages(b, stores)
	self, err := os.Executable()
	require.NoError(b, err)
	type served struct{ name, binary, role string }
	all := []served{{"tideline", self, "tideline"}, {"floor", self, "floor"}, {"gqlgen", self, "gqlgen"}}
	if *servedBeside != "" {
		all = append([]served{{"beside", *servedBeside, "tideline"}}, all...)
	}
	for range *servedRounds {
		for _, conns := range strings.Split(*servedConns, ",") {
			n, err := strconv.Atoi(conns)
			require.NoError(b, err)
			for _, s := range all {
				b.Run(s.name+"/"+conns, func(b *testing.B) {
					p := servePages(b, stores, s.binary, s.role)
					p.ask(b, stores, n)
				})
			}
		}
	}
}

// seedPages makes readers who follow 30 authors with 20 posts each, one a minute.
func seedPages(b *testing.B, stores *storage.Stores) {
	for _, statement := range []string{
		`INSERT INTO users (id, handle, name, bio, password_hash, fan_out_mode_since, created_at)
			SELECT g, 'user' || g, 'User ' || g, repeat('A word about me. ', 6), '$argon2id$v=19$m=19456,t=2,p=1$' || repeat('x', 66), 0, now() FROM generate_series(1, 10000) g`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT r, 1000 + a, now() FROM generate_series(1, 64) r, generate_series(1, 30) a`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT r, 2000 + (r * 7 + a * 13) % 5000, now() FROM generate_series(100, 999) r, generate_series(1, 30) a ON CONFLICT DO NOTHING`,
		`INSERT INTO sessions (token_hash, user_id, expires_at, created_at) SELECT sha256(('token' || g)::bytea), g, now() + interval '1 day', now() FROM generate_series(1, 5000) g`,
	} {
		_, err := stores.SQL.ExecContext(b.Context(), statement)
		require.NoError(b, err)
	}
	posts := make([]*ent.PostCreate, 0, 600)
	for i := range 600 {
		id := ids.At(time.Now().Add(-time.Duration(10+600-i) * time.Minute))
		posts = append(posts, stores.DB.Post.Create().SetID(id).SetAuthorID(int64(1001+i%30)).
			SetText("Twenty of these make a page, and thirty authors an inbox.").SetVisibility(schema.Public))
	}
	require.NoError(b, stores.DB.Post.CreateBulk(posts...).Exec(b.Context()))
	for _, statement := range []string{
		`INSERT INTO posts (id, author_id, text, visibility) SELECT 1000000 + g, 2000 + g % 5000, 'A post that is on none of the pages that are read here.', 'PUBLIC' FROM generate_series(1, 30000) g`,
		`INSERT INTO likes (user_id, post_id) SELECT 100 + (p.id * 31 + n) % 9000, p.id FROM posts p, generate_series(1, 2) n WHERE p.id < 2000000`,
		`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT 100 + g, 2000 + g % 700, now() FROM generate_series(1, 5000) g`,
		`INSERT INTO mutes (muter_id, muted_id, created_at) SELECT 100 + g, 2000 + g % 900, now() FROM generate_series(1, 5000) g`,
		`UPDATE users SET last_post_id = (SELECT max(id) FROM posts WHERE author_id = users.id), post_count = 20, public_post_count = 20 WHERE id BETWEEN 1001 AND 1030`,
		`INSERT INTO likes (user_id, post_id) SELECT 100 + n, p.id FROM posts p, generate_series(1, 10) n WHERE p.id > 2000000`,
		`VACUUM ANALYZE`,
	} {
		_, err := stores.SQL.ExecContext(b.Context(), statement)
		require.NoError(b, err)
	}
}

// pageServer is a process that answers for pages.
type pageServer struct {
	address string
	pid     int
}

// servePages starts a server, with full inboxes if it needs any.
func servePages(b *testing.B, stores *storage.Stores, binary, role string) pageServer {
	cfg := storagetest.Config(stores)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), servedRole+"="+role, "PAGE_DATABASE="+cfg.DatabaseURL, "PAGE_REDIS="+cfg.RedisURL)
	if role != "tideline" {
		cmd.Env = append(cmd.Env, servedProfile+"=")
	}
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	cmd.Stderr = os.Stderr
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	lines, found := bufio.NewScanner(out), []string(nil)
	for found == nil {
		require.True(b, lines.Scan(), "the server ended before it announced itself")
		found = regexp.MustCompile(`API +http://([^/]+)/`).FindStringSubmatch(lines.Text())
	}
	go io.Copy(io.Discard, out)
	p := pageServer{found[1], cmd.Process.Pid}
	feeds, err := timeline.New(stores.Redis, timeline.Config{})
	require.NoError(b, err)
	for reader := range servedReaders {
		c := p.dial(b, reader)
		defer c.Close()
		require.Eventually(b, func() bool {
			require.NoError(b, c.page(20))
			if role != "tideline" {
				return true
			}
			_, covered, err := feeds.Page(b.Context(), timeline.Inbox(int64(reader+1)), timeline.Range{Limit: 1})
			return err == nil && covered.State == timeline.Ready
		}, 10*time.Second, 10*time.Millisecond)
	}
	return p
}

// ask asks for b.N pages over n connections.
func (p pageServer) ask(b *testing.B, stores *storage.Stores, n int) {
	clients := make([]*pageClient, n)
	for i := range clients {
		clients[i] = p.dial(b, i%servedReaders)
		defer clients[i].Close()
		require.NoError(b, clients[i].page(20))
	}
	// A connection to PostgreSQL plans a statement anew the first five times.
	p.share(b, clients, servedWarmUp)
	postgres, rdb := postgresPid(b, stores), redisPid(b, stores)
	server, database, cache := ticks(b, p.pid), ticksBelow(b, postgres), ticks(b, rdb)
	b.ResetTimer()
	p.share(b, clients, b.N)
	b.StopTimer()
	perRequest := func(ticks int64) float64 { return float64(ticks) * 10_000 / float64(b.N) } // a tick is 10 ms
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(perRequest(ticks(b, p.pid)-server), "server-µs")
	b.ReportMetric(perRequest(ticksBelow(b, postgres)-database), "postgres-µs")
	b.ReportMetric(perRequest(ticks(b, rdb)-cache), "redis-µs")
	b.ReportMetric(0, "ns/op")
}

// share has the clients ask for so many pages together.
func (p pageServer) share(b *testing.B, clients []*pageClient, pages int) {
	var asked atomic.Int64
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error {
			for asked.Add(1) <= int64(pages) {
				if err := c.page(20); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
}

// pageClient asks over one connection, with as little work as possible.
type pageClient struct {
	net.Conn
	in      *bufio.Reader
	request []byte
	body    []byte
}

func (p pageServer) dial(b *testing.B, reader int) *pageClient {
	conn, err := net.Dial("tcp", p.address)
	require.NoError(b, err)
	body, err := json.Marshal(map[string]string{"query": pageQuery})
	require.NoError(b, err)
	request := fmt.Appendf(nil, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\n"+
		"Authorization: Bearer token%d\r\nContent-Length: %d\r\n\r\n%s", p.address, reader+1, len(body), body)
	return &pageClient{conn, bufio.NewReaderSize(conn, 16<<10), request, make([]byte, 64<<10)}
}

// page asks for a page, which must have so many posts.
func (c *pageClient) page(posts int) error {
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	length, status, chunked := 0, "", false
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if status == "" {
			status = string(line[9:12])
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		chunked = chunked || bytes.HasPrefix(line, []byte("Transfer-Encoding: chunked"))
		if len(line) == 2 {
			break
		}
	}
	body := c.body[:length]
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	if chunked {
		var err error
		if body, err = io.ReadAll(httputil.NewChunkedReader(c.in)); err != nil {
			return err
		}
		if _, err := c.in.Discard(len("\r\n")); err != nil {
			return err
		}
	}
	if n := bytes.Count(body, []byte(`"viewerHasLiked"`)); status != "200" || n != posts {
		return fmt.Errorf("status %s with %d posts: %.300s", status, n, body)
	}
	return nil
}

// serveRole runs the server that the environment names in place of the tests.
func serveRole(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if path := os.Getenv(servedProfile); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	database, rdb := os.Getenv("PAGE_DATABASE"), os.Getenv("PAGE_REDIS")
	switch role {
	case "tideline":
		dir, err := os.MkdirTemp("", "page")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		var c Config
		parser, err := kong.New(&c, kong.Vars(Vars()))
		if err != nil {
			return err
		}
		if _, err := parser.Parse([]string{"--addr=127.0.0.1:0", "--rate-limit=off", "--log-level=warn", "--data-dir=" + filepath.Join(dir, "data"),
			"--database-url=" + database, "--redis-url=" + rdb}); err != nil {
			return err
		}
		return Run(ctx, c, Server, Console{Out: os.Stdout, Log: os.Stderr})
	case "floor":
		return serveFloor(ctx, database, rdb)
	default:
		return serveStatic(ctx, database)
	}
}

// serveHTTP serves until ctx ends, and announces itself as a server does.
func serveHTTP(ctx context.Context, h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "API http://%s/\n", l.Addr())
	s := &http.Server{Handler: h}
	go func() {
		<-ctx.Done()
		s.Close()
	}()
	_ = s.Serve(l)
	return nil
}

const floorPosts = `SELECT p.id, p.text, p.visibility, p.like_count, u.id, u.handle, u.name
	FROM posts p JOIN users u ON u.id = p.author_id WHERE p.id = ANY($1) ORDER BY p.id DESC`

func postgresPid(b *testing.B, stores *storage.Stores) (pid int) {
	var backend int
	require.NoError(b, stores.SQL.QueryRowContext(b.Context(), "SELECT pg_backend_pid()").Scan(&backend))
	s, err := statOf(backend)
	if err != nil {
		b.Skip("processor times are read from /proc: ", err)
	}
	return s.parent
}

func redisPid(b *testing.B, stores *storage.Stores) int {
	info, err := stores.Redis.Info(b.Context(), "server").Result()
	require.NoError(b, err)
	pid, err := strconv.Atoi(regexp.MustCompile(`process_id:(\d+)`).FindStringSubmatch(info)[1])
	require.NoError(b, err)
	return pid
}

// procStat is what /proc says of a process. Times are in ticks.
type procStat struct {
	parent    int
	own, gone int64
}

func statOf(pid int) (s procStat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	var user, system, goneUser, goneSystem int64
	var skip [8]string
	_, err = fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &skip[0], &s.parent,
		&skip[1], &skip[1], &skip[2], &skip[3], &skip[4], &skip[5], &skip[6], &skip[7], &skip[7], &user, &system, &goneUser, &goneSystem)
	s.own, s.gone = user+system, goneUser+goneSystem
	return s, err
}

func ticks(b *testing.B, pid int) int64 {
	s, err := statOf(pid)
	require.NoError(b, err)
	return s.own
}

// ticksBelow is the time of a process and of its children, also of those that have ended.
func ticksBelow(b *testing.B, pid int) int64 {
	s, err := statOf(pid)
	require.NoError(b, err)
	total := s.own + s.gone
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(b, err)
	for _, dir := range all {
		child, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(b, err)
		if s, err := statOf(child); err == nil && s.parent == pid { // else it has ended meanwhile
			total += s.own
		}
	}
	return total
}

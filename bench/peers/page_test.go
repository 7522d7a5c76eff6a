package peers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/ids"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

const (
	pageTime    = 3 * time.Second // of requests to one server
	pageReaders = 64              // users who read, each through one permanent connection
	warmUp      = 2000            // pages read before the measurement
	warmUpOnce  = 1
)

const pageQuery = `{ timeline { pageInfo { hasNextPage endCursor }
	edges { cursor node { id text visibility createdAt likeCount viewerHasLiked author { id handle name } } } } }`

// BenchmarkPage measures a home page of 20 posts with their authors over HTTP, on PostgreSQL and
// redis-server. It measures one process after the other, with the same client and stores:
//
//   - tideline;
//   - its floor: a range of the sorted set, the posts and authors by key, and JSON written by hand;
//   - gqlgen's own server with the posts in memory;
//   - PostGraphile on Tideline's tables, if it is installed.
//
// It reports requests per second, and the processor time that a request takes of the
// server, of PostgreSQL and of Redis.
//
// PEER_PROFILE names a file for a CPU profile of tideline.
func BenchmarkPage(b *testing.B) {
	if _, err := postgraphile(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	stores := storagetest.Real(b)
	seedPages(b, stores, 30_000)
	for range *rounds {
		for _, n := range sizes(b, *connections) {
			for _, p := range pagePeers() {
				b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
					measured.report(b, "page, connections", strconv.Itoa(n), p.name, measurePages(b, stores, p, n, warmUp, *pageLength))
				})
			}
		}
	}
}

// pagePeers returns the peers that can run here.
func pagePeers() []peer {
	all := peersOf("gqlgen", "floor")
	if p, err := postgraphile(); err == nil {
		all = append(all, p)
	}
	return all
}

// measurePages requests pages from a new process over n connections.
func measurePages(tb testing.TB, stores *storage.Stores, p peer, n, warm int, length time.Duration) []figure {
	running, stop := p.start(tb, stores)
	defer stop()
	running.fillInboxes(tb, stores)
	clients := make([]*pageClient, n)
	for i := range clients {
		clients[i] = running.dial(tb, i%pageReaders)
		defer clients[i].Close()
	}
	// A connection to PostgreSQL plans a statement again for its first five executions.
	var asked atomic.Int64
	askAll(tb, clients, func() bool { return asked.Add(1) <= int64(warm) })
	m, began := startMeter(tb, stores, running), time.Now()
	answered := askAll(tb, clients, func() bool { return time.Since(began) < length })
	rate := float64(answered) / time.Since(began).Seconds()
	return append([]figure{{"requests/s", rate}}, m.figures(answered)...)
}

// askAll makes each client request one page after the other while more returns true.
func askAll(tb testing.TB, clients []*pageClient, more func() bool) (answered int) {
	var total atomic.Int64
	var group errgroup.Group
	for _, c := range clients {
		group.Go(func() error {
			for more() {
				if err := c.page(20); err != nil {
					return err
				}
				total.Add(1)
			}
			return nil
		})
	}
	require.NoError(tb, group.Wait())
	return int(total.Load())
}

// fillInboxes reads until Tideline has all inboxes in Redis. Other peers have no inboxes.
func (p process) fillInboxes(tb testing.TB, stores *storage.Stores) {
	feeds, err := timeline.New(stores.Redis, timeline.Config{})
	require.NoError(tb, err)
	for reader := range pageReaders {
		c := p.dial(tb, reader)
		defer c.Close()
		require.Eventually(tb, func() bool {
			require.NoError(tb, c.page(20))
			if p.role != "tideline" {
				return true
			}
			_, covered, err := feeds.Feeds.Page(tb.Context(), timeline.Inbox(int64(reader+1)), timeline.Range{Limit: 1})
			return err == nil && covered.State == timeline.Ready
		}, patience, 10*time.Millisecond)
	}
}

// seedPages creates readers who follow 30 authors with 20 posts each, one post a minute, and
// the given number of posts by others.
func seedPages(tb testing.TB, stores *storage.Stores, others int) {
	for _, statement := range []string{
		`INSERT INTO users (id, handle, name, bio, password_hash, fan_out_mode_since, created_at)
			SELECT g, 'user' || g, 'User ' || g, repeat('A word about me. ', 6), '$argon2id$v=19$m=19456,t=2,p=1$' || repeat('x', 66), 0, now() FROM generate_series(1, 10000) g`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT r, 1000 + a, now() FROM generate_series(1, 64) r, generate_series(1, 30) a`,
		`INSERT INTO follows (follower_id, followee_id, created_at) SELECT r, 2000 + (r * 7 + a * 13) % 5000, now() FROM generate_series(100, 999) r, generate_series(1, 30) a ON CONFLICT DO NOTHING`,
		`INSERT INTO sessions (token_hash, user_id, expires_at, created_at) SELECT sha256(('token' || g)::bytea), g, now() + interval '1 day', now() FROM generate_series(1, 5000) g`,
	} {
		_, err := stores.SQL.ExecContext(tb.Context(), statement)
		require.NoError(tb, err)
	}
	writePosts(tb, stores, 600, "Twenty of these make a page, and thirty authors an inbox.", func(i int) int64 { return int64(1001 + i%30) })
	for _, statement := range []string{
		fmt.Sprintf(`INSERT INTO posts (id, author_id, text, visibility) SELECT 1000000 + g, 2000 + g %% 5000, 'A post that is on none of the pages that are read here.', 'PUBLIC' FROM generate_series(1, %d) g`, others),
		`INSERT INTO likes (user_id, post_id) SELECT 100 + (p.id * 31 + n) % 9000, p.id FROM posts p, generate_series(1, 2) n WHERE p.id < 2000000`,
		`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT 100 + g, 2000 + g % 700, now() FROM generate_series(1, 5000) g`,
		`INSERT INTO mutes (muter_id, muted_id, created_at) SELECT 100 + g, 2000 + g % 900, now() FROM generate_series(1, 5000) g`,
		`UPDATE users SET last_post_id = (SELECT max(id) FROM posts WHERE author_id = users.id), post_count = 20, public_post_count = 20 WHERE id BETWEEN 1001 AND 1030`,
		`INSERT INTO likes (user_id, post_id) SELECT 100 + n, p.id FROM posts p, generate_series(1, 10) n WHERE p.id > 2000000`,
		`VACUUM ANALYZE`,
	} {
		_, err := stores.SQL.ExecContext(tb.Context(), statement)
		require.NoError(tb, err)
	}
}

// writePosts creates n public posts, one a minute until ten minutes ago. author returns the author of post i.
func writePosts(tb testing.TB, stores *storage.Stores, n int, text string, author func(i int) int64) {
	posts := make([]*ent.PostCreate, n)
	for i := range posts {
		id := ids.At(time.Now().Add(-time.Duration(10+n-i) * time.Minute))
		posts[i] = stores.DB.Post.Create().SetID(id).SetAuthorID(author(i)).SetText(text).SetVisibility(schema.Public)
	}
	require.NoError(tb, stores.DB.Post.CreateBulk(posts...).Exec(tb.Context()))
}

// pageClient requests pages over one connection with as little work as possible.
type pageClient struct {
	net.Conn
	in      *bufio.Reader
	request []byte
	body    []byte
	answer  []byte // the last page
}

func (p process) dial(tb testing.TB, reader int) *pageClient {
	return p.dialFrom(tb, net.IPv4(127, 0, 0, 1), reader)
}

func (p process) dialFrom(tb testing.TB, address net.IP, reader int) *pageClient {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}).DialContext(tb.Context(), "tcp", p.address)
	require.NoError(tb, err)
	body, err := json.Marshal(pageRequest(p.role, reader))
	require.NoError(tb, err)
	request := fmt.Appendf(nil, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\n"+
		"Authorization: Bearer token%d\r\nContent-Length: %d\r\n\r\n%s", p.address, reader+1, len(body), body)
	return &pageClient{Conn: conn, in: bufio.NewReaderSize(conn, 16<<10), request: request, body: make([]byte, 64<<10)}
}

// page requests a page, which must have that many posts.
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
		if value, ok := headerValue(line, "Content-Length: "); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if value, ok := headerValue(line, "Transfer-Encoding: "); ok {
			chunked = string(bytes.TrimSpace(value)) == "chunked"
		}
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
	c.answer = body
	if n := bytes.Count(body, []byte(`"viewerHasLiked"`)); status != "200" || n != posts {
		return fmt.Errorf("status %s with %d posts: %.300s", status, n, body)
	}
	return nil
}

// headerValue returns the value if the line is the named header. Node's servers write
// names in another case than Go's.
func headerValue(line []byte, name string) ([]byte, bool) {
	if len(line) < len(name) || !strings.EqualFold(string(line[:len(name)]), name) {
		return nil, false
	}
	return line[len(name):], true
}

package graph_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// BenchmarkHomePage measures a home page of 20 posts, of which a third are replies and a third reposts, next
// to a page of 20 posts that are neither. The posts and the originals are shown with their authors. µs is the
// processor time of this process, which includes Redis on SQLite, and sql-µs that of PostgreSQL.
func BenchmarkHomePage(b *testing.B) {
	const shown = "id text visibility createdAt likeCount viewerHasLiked author { id handle name }"
	const query = `{ timeline(first: 20) { position edges { cursor score node { ` + shown + ` repostOf { ` + shown + ` } } } pageInfo { hasNextPage endCursor } } }`
	for name, open := range map[string]func(testing.TB) *storage.Stores{"postgres": storagetest.Real, "sqlite": storagetest.Embedded} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			s.DB = ent.NewClient(ent.Driver(s.Driver)) // the client of tests counts statements
			w := feedtest.New(b, s, feedtest.Options{})
			w.Run(w.IDs.Run)
			engine, err := graph.New(backend(w), graph.Config{})
			require.NoError(b, err)
			readers := map[string]session.Viewer{"plain": homePage(w, "p", false), "mixed": homePage(w, "m", true)}
			fill(b, s)
			server := postmaster(b, s)
			spent, pages := map[string]time.Duration{}, 0
			for b.Loop() {
				for page, reader := range readers {
					ctx := graph.WithViewer(w.Ctx, reader)
					op, errs := engine.Prepare(ctx, exec.Request{Query: query})
					require.Empty(b, errs)
					own, sql := storagetest.ProcessorTime(b), childrenTime(b, server)
					for range 500 {
						response := engine.Execute(ctx, op)
						require.Empty(b, response.Errors)
					}
					spent[page] += storagetest.ProcessorTime(b) - own
					spent[page+"-sql"] += childrenTime(b, server) - sql
				}
				pages += 500
			}
			for what, time := range spent {
				b.ReportMetric(float64(time.Microseconds())/float64(pages), what+"-µs")
			}
			b.ReportMetric(float64(spent["mixed"]+spent["mixed-sql"])/float64(spent["plain"]+spent["plain-sql"]), "mixed/plain")
		})
	}
}

// homePage returns a user with an inbox of 60 entries that are two hours old. If mixed is set, a third of them
// are replies and a third reposts, of posts that the user does not get otherwise.
func homePage(w *feedtest.World, prefix string, mixed bool) session.Viewer {
	reader := w.User(prefix)
	var authors, others []session.Viewer
	for i := range 20 {
		authors, others = append(authors, w.User(fmt.Sprintf("%s_a%d", prefix, i))), append(others, w.User(fmt.Sprintf("%s_o%d", prefix, i)))
		w.Follow(reader, authors[i])
	}
	post := func(by session.Viewer, more func(p *ent.PostCreate)) int64 {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		id -= 2 * time.Hour.Milliseconds() << 12
		p := w.Stores.DB.Post.Create().SetID(id).SetAuthorID(by.ID).SetVisibility(schema.Public).SetText("Twenty of these make a page, and some hundred a timeline.")
		more(p)
		require.NoError(w, p.Exec(w.Ctx))
		return id
	}
	plain := func(*ent.PostCreate) {}
	var roots, originals []int64
	for i := range 20 {
		roots, originals = append(roots, post(authors[i], plain)), append(originals, post(others[i], plain))
	}
	for i := range 60 {
		author, answered := authors[i%20], (i+5)%20
		switch {
		case mixed && i%3 == 1:
			post(author, func(p *ent.PostCreate) {
				p.SetParentID(roots[answered]).SetRootID(roots[answered]).SetParentAuthorID(authors[answered].ID)
			})
		case mixed && i%3 == 2:
			post(author, func(p *ent.PostCreate) { p.SetRepostOf(originals[i%20]).SetText("") })
		default:
			post(author, plain)
		}
	}
	for _, author := range authors {
		w.Posted(author)
	}
	_, err := w.Timelines.Visits.Visit(w.Ctx, reader.ID)
	require.NoError(w, err)
	require.NoError(w, w.Home.Reader.BuildInbox(w.Ctx, reader.ID))
	require.Len(w, w.Timeline(reader, 20), 20)
	return reader
}

// fill adds what a small server has, so that the plans of statements are realistic: 10,000 users and 100,000
// posts, follows and likes.
func fill(b *testing.B, s *storage.Stores) {
	conn, err := s.SQL.Conn(b.Context())
	require.NoError(b, err)
	defer conn.Close()
	off, on := "SET session_replication_role = replica", "RESET session_replication_role"
	n := "(SELECT g AS n FROM generate_series(1, 100000) s(g)) s"
	if s.Dialect == dialect.SQLite {
		off, on = "PRAGMA foreign_keys = 0", "PRAGMA foreign_keys = 1"
		n = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 100000) SELECT n FROM s) s"
	}
	for _, statement := range []string{
		off,
		"INSERT INTO users (id, handle, password_hash, fan_out_mode_since, created_at) SELECT n, 'filler' || n, '-', 0, CURRENT_TIMESTAMP FROM " + n + " WHERE n <= 10000",
		"INSERT INTO posts (id, author_id, text, visibility) SELECT n, n % 10000 + 1, 'filler', 'PUBLIC' FROM " + n,
		"INSERT INTO follows (follower_id, followee_id, created_at) SELECT n % 10000 + 1, n / 10 + 1, CURRENT_TIMESTAMP FROM " + n,
		"INSERT INTO likes (user_id, post_id) SELECT n % 10000 + 1, n FROM " + n,
		on, "ANALYZE",
	} {
		_, err := conn.ExecContext(b.Context(), statement)
		require.NoError(b, err, statement)
	}
}

// postmaster returns the id of PostgreSQL's first process, the parent of all others, or "" on SQLite.
func postmaster(b *testing.B, s *storage.Stores) (pid string) {
	if !s.Embedded {
		require.NoError(b, s.SQL.QueryRowContext(b.Context(), "SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)").Scan(&pid))
	}
	return pid
}

// childrenTime returns the processor time that the children of a process have used. Linux counts it in
// hundredths of a second.
func childrenTime(b *testing.B, parent string) (sum time.Duration) {
	if parent == "" {
		return 0
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(b, err)
	for _, file := range files {
		stat, _ := os.ReadFile(file) // the process may have ended
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); len(f) > 12 && f[1] == parent {
			user, _ := strconv.Atoi(f[11])
			system, _ := strconv.Atoi(f[12])
			sum += time.Duration(user+system) * 10 * time.Millisecond
		}
	}
	return sum
}

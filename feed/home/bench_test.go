package home_test

import (
	"database/sql"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

var (
	benchFollowees = flag.String("followees", "300,3000", "how many the reader of BenchmarkReturningUser follows")
	benchOutbox    = flag.Int("outbox", 1000, "posts of each followee in BenchmarkReturningUser: 1000 fill an outbox")
)

// town is a fixture with a reader, user 1, who follows the authors from user 2 on. It runs on
// PostgreSQL and redis-server, or on the embedded engines.
type town struct {
	*storage.Stores
	tl     *timeline.Store
	home   *home.Home
	reader session.Viewer
}

func newTown(b *testing.B, s *storage.Stores, followees int) *town {
	b.Helper()
	t := &town{Stores: s, reader: session.Viewer{ID: 1}}
	// A client that does not count statements as the client of tests does.
	s.DB = ent.NewClient(ent.Driver(s.Driver))
	var err error
	t.tl, err = timeline.New(s.Redis, timeline.Config{})
	require.NoError(b, err)
	t.home = t.process(b, home.Policy{}, nil)
	t.exec(b, `INSERT INTO users (id, handle, password_hash, fan_out_mode_since, created_at) SELECT g, 'u' || g, '-', 0, CURRENT_TIMESTAMP FROM `+t.series(20000))
	t.exec(b, `INSERT INTO follows (follower_id, followee_id, created_at) SELECT 1, g + 1, CURRENT_TIMESTAMP FROM `+t.series(followees))
	// Other users follow as many authors.
	t.exec(b, `INSERT INTO follows (follower_id, followee_id, created_at) SELECT 10000 + g % 100, 2 + g / 100, CURRENT_TIMESTAMP FROM `+t.series(100*followees))
	return t
}

// process returns a Home that serves the fixture with the policy.
func (t *town) process(b *testing.B, policy home.Policy, observe func(hit bool)) *home.Home {
	b.Helper()
	q, err := queue.New(t.DB, t.Redis, queue.Config{})
	require.NoError(b, err)
	h, err := home.New(home.Config{
		DB: t.DB, Dialect: t.Dialect, Visibility: visibility.New(t.DB, t.Dialect), Timelines: t.tl, Queue: q,
		Publisher: live.NewPublisher(t.Redis, t.Sharded), Policy: policy, Observe: observe,
	})
	require.NoError(b, err)
	return h
}

// series returns an SQL table of the numbers g from 1 to n.
func (t *town) series(n int) string {
	if t.Dialect == dialect.Postgres {
		return fmt.Sprintf("generate_series(1, %d) s(g)", n)
	}
	return fmt.Sprintf("(WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < %d) SELECT g FROM n) s", n)
}

// exec runs statements without checking foreign keys: the checks take longer than the rest of the
// set-up.
func (t *town) exec(b *testing.B, statements ...string) {
	b.Helper()
	conn, err := t.SQL.Conn(b.Context())
	require.NoError(b, err)
	defer conn.Close()
	off, on := "SET session_replication_role = replica", "RESET session_replication_role"
	if t.Dialect == dialect.SQLite {
		off, on = "PRAGMA foreign_keys = 0", "PRAGMA foreign_keys = 1"
	}
	for _, statement := range slices.Concat([]string{off}, statements, []string{on}) {
		_, err := conn.ExecContext(b.Context(), statement)
		require.NoError(b, err)
	}
}

// posts writes n posts with ids from first on. The SQL expression author gives the author of post
// g, where g runs from 1 to n.
func (t *town) posts(b *testing.B, first int64, n int, author string) {
	b.Helper()
	t.exec(b, fmt.Sprintf(`INSERT INTO posts (id, author_id, text, visibility)
		SELECT %d + g, %s, 'Twenty of these make a page, and some hundred a timeline.', 'PUBLIC' FROM %s`, first, author, t.series(n)))
}

const longAgo = 1 << 40 // a post's id

// ready updates the authors' rows after their posts were written.
func (t *town) ready(b *testing.B) {
	b.Helper()
	analyze := "ANALYZE"
	if t.Dialect == dialect.Postgres {
		analyze = "VACUUM ANALYZE"
	}
	t.exec(b, `UPDATE users SET last_post_id = coalesce((SELECT max(id) FROM posts WHERE author_id = users.id), 0)`, analyze)
}

// outboxes fills the outboxes of the reader and of all followees.
func (t *town) outboxes(b *testing.B, followees int) {
	b.Helper()
	for author := int64(1); author <= int64(followees)+1; author++ {
		build, started, err := t.tl.Feeds.Begin(b.Context(), timeline.Outbox(author))
		require.NoError(b, err)
		require.True(b, started)
		ids, floor := scan(b, t, fmt.Sprintf("SELECT id FROM posts WHERE author_id = %d ORDER BY id DESC LIMIT 1000", author)), int64(0)
		if len(ids) == 1000 {
			floor = ids[999]
		}
		done, err := t.tl.Feeds.Finish(b.Context(), &build, ids, floor)
		require.NoError(b, err)
		require.True(b, done)
	}
}

// BenchmarkReturningUser measures the first page of a user who returns and has no inbox, for
// several distributions of the followees' posts: from SQL, and from the outboxes in Redis when no
// author is pushed. The measured floor is the least work that a program can do: read the list of
// followees, and twenty posts by key. The figures are medians of both.
//
// The benchmark also compares every page with the same page read the plain way. With Redis it
// reports how long one command delays all others: the 99th percentile of the slowest kind, from
// the latency statistics, and the longest command, from SLOWLOG. On a busy machine that includes
// the time in which other processes ran.
func BenchmarkReturningUser(b *testing.B) {
	for _, count := range strings.Split(*benchFollowees, ",") {
		followees, err := strconv.Atoi(count)
		require.NoError(b, err)
		for _, shape := range []struct {
			name   string
			first  int64
			author string
		}{
			{"in turn", longAgo, "2 + g %% %[1]d"},
			{"one after the other", longAgo, "2 + (g - 1) / %[2]d"},
			{"one has them all", longAgo, "CASE WHEN g > %[1]d * (%[2]d - 1) THEN 2 ELSE 2 + g %% %[1]d END"},
			{"strangers since", longAgo, "CASE WHEN g > %[1]d * %[2]d / 2 THEN 5000 + g %% 1000 ELSE 2 + g %% %[1]d END"},
			// Cursors then also name the other recent posts that the reader has.
			{"just now", ids.At(time.Now().Add(time.Hour)), "2 + g %% %[1]d"},
		} {
			b.Run(fmt.Sprintf("followees=%d/%s", followees, shape.name), func(b *testing.B) {
				engines(b, func(b *testing.B, s *storage.Stores) {
					t := newTown(b, s, followees)
					t.posts(b, shape.first, followees**benchOutbox, fmt.Sprintf(shape.author+"%[3]s", followees, *benchOutbox, ""))
					t.ready(b)
					b.Run("from=SQL", func(b *testing.B) { benchmarkReturn(b, t, t.home) })
					if s.Embedded {
						return
					}
					t.outboxes(b, followees)
					missed := 0
					pulls := t.process(b, home.Policy{PullAbove: home.AlwaysPull}, func(hit bool) {
						if !hit {
							missed++
						}
					})
					b.Run("from=Redis", func(b *testing.B) {
						longest := t.commands(b)
						benchmarkReturn(b, t, pulls)
						p99, most := longest()
						b.ReportMetric(p99, "redis-p99-ms")
						b.ReportMetric(most, "redis-most-ms")
					})
					require.Zero(b, missed)
				})
			})
		}
	}
}

// commands starts to measure how long each command takes in Redis. The function that it returns
// reports, in milliseconds, the longest command and the 99th percentile of the slowest kind.
func (t *town) commands(b *testing.B) (longest func() (p99, most float64)) {
	b.Helper()
	ctx := b.Context()
	require.NoError(b, t.Redis.ConfigSet(ctx, "slowlog-log-slower-than", "50").Err())
	require.NoError(b, t.Redis.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	require.NoError(b, t.Redis.Do(ctx, "SLOWLOG", "RESET").Err())
	require.NoError(b, t.Redis.ConfigResetStat(ctx).Err())
	return func() (p99, most float64) {
		entries, err := t.Redis.(*redis.Client).SlowLogGet(ctx, -1).Result()
		require.NoError(b, err)
		for _, e := range entries {
			most = max(most, float64(e.Duration.Microseconds())/1000)
		}
		stats, err := t.Redis.Info(ctx, "latencystats").Result()
		require.NoError(b, err)
		for _, found := range regexp.MustCompile(`(?:hmget|evalsha):.*p99=([0-9.]+)`).FindAllStringSubmatch(stats, -1) {
			micros, err := strconv.ParseFloat(found[1], 64)
			require.NoError(b, err)
			p99 = max(p99, micros/1000)
		}
		return p99, most
	}
}

func engines(b *testing.B, run func(b *testing.B, s *storage.Stores)) {
	b.Run("postgres", func(b *testing.B) { run(b, storagetest.Real(b)) })
	b.Run("sqlite", func(b *testing.B) { run(b, storagetest.Embedded(b)) })
}

func benchmarkReturn(b *testing.B, t *town, f *home.Home) {
	ctx := b.Context()
	const plain = `SELECT id FROM posts WHERE author_id IN (SELECT followee_id FROM follows WHERE follower_id = 1) ORDER BY id DESC LIMIT 20`
	want := scan(b, t, plain)
	page := func() time.Duration {
		require.NoError(b, t.tl.Feeds.Drop(ctx, timeline.Inbox(t.reader.ID)))
		start := time.Now()
		page, err := f.Timeline(ctx, t.reader, paging.Page{}, home.Latest)
		once := time.Since(start)
		require.NoError(b, err)
		require.Equal(b, want, feedtest.PostIDs(page))
		return once
	}
	page()                    // prepares the statements
	var ours, floor []float64 // milliseconds
	for b.Loop() {
		ours = append(ours, page().Seconds()*1000)

		start := time.Now()
		scan(b, t, `SELECT followee_id FROM follows WHERE follower_id = 1`)
		bare(b, t.SQL, want)
		floor = append(floor, time.Since(start).Seconds()*1000)
	}
	slices.Sort(ours)
	slices.Sort(floor)
	b.ReportMetric(ours[0], "fastest-ms")
	b.ReportMetric(ours[len(ours)/2], "page-ms")
	b.ReportMetric(ours[len(ours)-1], "slowest-ms")
	b.ReportMetric(floor[len(floor)/2], "floor-ms")
}

func scan(b *testing.B, t *town, query string) (ids []int64) {
	rows, err := t.SQL.QueryContext(b.Context(), query)
	require.NoError(b, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			b.Fatal(err) // cheaper than the functions of require, which is called for each row
		}
		ids = append(ids, id)
	}
	require.NoError(b, rows.Err())
	return ids
}

// bare reads twenty posts by key: the least that a program can do.
func bare(b *testing.B, db *sql.DB, ids []int64) {
	query, args := "SELECT id, author_id, text, visibility, like_count FROM posts WHERE id IN (", make([]any, len(ids))
	for i, id := range ids {
		query, args[i] = query+fmt.Sprintf("$%d,", i+1), id
	}
	rows, err := db.QueryContext(b.Context(), query[:len(query)-1]+")", args...)
	require.NoError(b, err)
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var p ent.Post
		require.NoError(b, rows.Scan(&p.ID, &p.AuthorID, &p.Text, &p.Visibility, &p.LikeCount))
	}
	require.NoError(b, rows.Err())
	require.Equal(b, len(ids), n)
}

// BenchmarkInboxPage measures a page of 20 from a full inbox, including the checks and the client
// state of the cursors. It compares it with a bare ZRANGE and the same posts by key.
func BenchmarkInboxPage(b *testing.B) {
	engines(b, func(b *testing.B, s *storage.Stores) {
		ctx := b.Context()
		t := newTown(b, s, 100)
		t.posts(b, longAgo, 1000, "2 + g % 100")
		t.ready(b)
		_, err := t.tl.Visits.Visit(ctx, t.reader.ID)
		require.NoError(b, err)
		require.NoError(b, t.home.Reader.BuildInbox(ctx, t.reader.ID))
		key := timeline.Inbox(t.reader.ID).String() + ":z"
		var ours, floor time.Duration
		for b.Loop() {
			start := time.Now()
			page, err := t.home.TimelineWith(ctx, t.reader, paging.Page{}, home.Latest, "", visibility.Likes|visibility.Bare)
			ours += time.Since(start)
			require.NoError(b, err)
			require.Len(b, page.Edges, 20)

			start = time.Now()
			members, err := t.Redis.ZRangeWithScores(ctx, key, 0, 19).Result()
			require.NoError(b, err)
			bare(b, t.SQL, idsIn(members))
			floor += time.Since(start)
		}
		n := time.Duration(b.N)
		b.ReportMetric(float64((ours / n).Microseconds()), "page-µs")
		b.ReportMetric(float64((floor / n).Microseconds()), "floor-µs")
		b.ReportMetric(float64(ours)/float64(floor), "times-floor")
	})
}

// BenchmarkUnread measures the unread count of a timeline of 400 posts, all unread: when a process
// counts them, and when it has kept the number. One reader has read all but thirty posts, one merges
// ten of a hundred authors, and one mutes a word that no post contains and a word that five posts
// contain.
func BenchmarkUnread(b *testing.B) {
	for _, reader := range []struct {
		name   string
		unread int // at least
		change string
	}{
		{"pushed", 380, ""},
		{"thirty", 29, fmt.Sprintf("INSERT INTO read_markers (id, post_id) VALUES (1, %d)", int64(longAgo)+370)},
		{"merging", 380, "UPDATE users SET fan_out_mode = 'PULL' WHERE id BETWEEN 2 AND 11"},
		{"words", 380, "INSERT INTO muted_words (user_id, word, head, created_at) VALUES (1, 'penguin', 'penguin', CURRENT_TIMESTAMP), (1, 'walrus', 'walrus', CURRENT_TIMESTAMP)"},
	} {
		b.Run(reader.name, func(b *testing.B) {
			engines(b, func(b *testing.B, s *storage.Stores) {
				ctx := b.Context()
				t := newTown(b, s, 100)
				t.posts(b, longAgo, 400, "2 + g % 100")
				if reader.change != "" {
					t.exec(b, reader.change, fmt.Sprintf("UPDATE posts SET text = 'A walrus.' WHERE id %% 80 = 0 AND author_id > 11"))
				}
				t.ready(b)
				for author := int64(2); author < 12; author++ {
					require.NoError(b, t.home.Reader.BuildOutbox(ctx, author))
				}
				_, err := t.tl.Visits.Visit(ctx, t.reader.ID)
				require.NoError(b, err)
				require.NoError(b, t.home.Reader.BuildInbox(ctx, t.reader.ID))
				spent := map[string]time.Duration{}
				for b.Loop() {
					anew := t.process(b, home.Policy{}, nil)
					for _, how := range []string{"", "counted", "kept"} { // the first reads the list of merged authors
						start := time.Now()
						n, err := anew.Unread.Count(ctx, t.reader)
						spent[how] += time.Since(start)
						require.NoError(b, err)
						require.Greater(b, n, reader.unread)
						if how == "" {
							anew.Unread.Forget(t.reader.ID)
						}
					}
				}
				n := time.Duration(b.N)
				for _, how := range []string{"counted", "kept"} {
					b.ReportMetric(float64((spent[how] / n).Microseconds()), how+"-µs")
				}
			})
		})
	}
}

// BenchmarkUnreadOfMany measures the unread counts of a thousand readers who follow a hundred
// authors and have thirty unread posts each. An event that reaches all of them at once needs
// these counts.
func BenchmarkUnreadOfMany(b *testing.B) {
	engines(b, func(b *testing.B, s *storage.Stores) {
		ctx := b.Context()
		t := newTown(b, s, 100)
		t.posts(b, longAgo, 1000, "2 + g * 7 % 200")
		t.exec(b, "DELETE FROM follows WHERE follower_id >= 10000",
			"INSERT INTO follows (follower_id, followee_id, created_at) SELECT 10000 + g % 1000, 2 + (g % 1000 + g / 1000) % 200, CURRENT_TIMESTAMP FROM "+t.series(99999),
			fmt.Sprintf("INSERT INTO read_markers (id, post_id) SELECT 9999 + g, %d FROM %s", int64(longAgo)+940, t.series(1000)))
		t.ready(b)
		readers := make([]int64, 1000)
		for i := range readers {
			readers[i] = 10000 + int64(i)
			_, err := t.tl.Visits.Visit(ctx, readers[i])
			require.NoError(b, err)
			require.NoError(b, t.home.Reader.BuildInbox(ctx, readers[i]))
		}
		for b.Loop() {
			counts, err := t.home.Unread.Counts(ctx, readers)
			require.NoError(b, err)
			require.Len(b, counts, len(readers))
			require.InDelta(b, 30, counts[readers[0]], 10)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(readers)), "µs/reader")
	})
}

// BenchmarkRankedPage measures a ranked page of 20 from an inbox of 500 posts, for each ranking.
// It compares it with the least work: the same posts by key. The reader likes 300 posts, and each
// post has data.
func BenchmarkRankedPage(b *testing.B) {
	engines(b, func(b *testing.B, s *storage.Stores) {
		ctx := b.Context()
		t := newTown(b, s, 100)
		t.posts(b, longAgo, 1000, "2 + g % 100")
		t.exec(b,
			fmt.Sprintf("INSERT INTO likes (user_id, post_id) SELECT %d, %d + g FROM %s", t.reader.ID, int64(longAgo), t.series(300)),
			fmt.Sprintf(`INSERT INTO post_data (post_id, data) SELECT %d + g, '{"kind":"offer","price":12.5,"place":"Lisbon"}' FROM %s`, int64(longAgo), t.series(1000)))
		t.ready(b)
		t.home = t.process(b, home.Policy{Rankings: map[string]string{
			"near": "log10(max(likes, 1)) + posted / 45000 + 2 * affinity", "deal": "-data.price", "longest": "likes" + strings.Repeat("*2", ranking.MaxOperations/2-1),
		}}, nil)
		_, err := t.tl.Visits.Visit(ctx, t.reader.ID)
		require.NoError(b, err)
		require.NoError(b, t.home.Reader.BuildInbox(ctx, t.reader.ID))
		key := timeline.Inbox(t.reader.ID).String() + ":z"
		names := t.home.Rankings().Names()
		spent := make([]time.Duration, len(names))
		var floor time.Duration
		for b.Loop() {
			for i, name := range names {
				start := time.Now()
				page, err := t.home.TimelineWith(ctx, t.reader, paging.Page{}, home.Ranked, name, visibility.Likes)
				spent[i] += time.Since(start)
				require.NoError(b, err)
				require.Len(b, page.Edges, 20)
			}
			start := time.Now()
			members, err := t.Redis.ZRangeWithScores(ctx, key, 0, int64(t.tl.Feeds.InboxCap())-1).Result()
			require.NoError(b, err)
			bare(b, t.SQL, idsIn(members))
			floor += time.Since(start)
		}
		n := time.Duration(b.N)
		for i, name := range names {
			b.ReportMetric(float64((spent[i] / n).Microseconds()), name+"-µs")
		}
		b.ReportMetric(float64((floor / n).Microseconds()), "floor-µs")
	})
}

func idsIn(members []redis.Z) []int64 {
	ids := make([]int64, len(members))
	for i, m := range members {
		ids[i] = -int64(m.Score)
	}
	return ids
}

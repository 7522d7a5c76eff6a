package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// The "feeds" commands run next to a server and a worker.
func TestFeeds(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	stores := storagetest.Real(t)
	settings := append(shared(stores), `TIDELINE_RANKINGS={"late":"-age"}`)
	server := start(t, settings, "server", "--addr=127.0.0.1:0")
	worker := start(t, settings, "worker", "--worker-addr=127.0.0.1:0")
	ann, ben := signUp(t, server, "ann"), signUp(t, server, "ben")
	signUp(t, server, "away")
	ben.follow(t, server, ann)
	var made struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	ann.call(t, server, `mutation { createPost(input: {text: "one"}) { post { id } } }`, nil, &made)
	ben.arrived(t, server, "one")
	tell := func(args ...string) (int, string) {
		t.Helper()
		code, out := run(t, settings, append([]string{"feeds"}, args...)...)
		require.NotContains(t, out, "p/s", "no bar for a file")
		return code, out
	}
	good := func(args ...string) string {
		t.Helper()
		code, out := tell(args...)
		require.Zero(t, code, out)
		return out
	}
	require.Eventually(t, func() bool {
		_, out := tell("explain", "ben", made.CreatePost.Post.ID)
		return strings.Contains(out, ". It is shown: it is in the viewer's inbox.\n\nhot: ")
	}, patience, poll)
	require.Regexp(t, `\n\nlate: -\d[\d.]* = -age\n  age  \d[\d.]*\n$`, good("explain", "ben", made.CreatePost.Post.ID))
	require.NotContains(t, good("explain", "ben", made.CreatePost.Post.ID, "--rank=late"), "hot")
	var explained struct {
		Viewer, Why string
		Scores      []struct {
			Ranking, Expression string
			Score               float64
			Signals             []struct {
				Name  string
				Value float64
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(good("explain", "ben", made.CreatePost.Post.ID, "--rank=late", "--json")), &explained))
	require.Equal(t, "ben", explained.Viewer)
	require.Len(t, explained.Scores, 1)
	require.Equal(t, -explained.Scores[0].Score, explained.Scores[0].Signals[0].Value)
	require.Contains(t, good("explain", "away", made.CreatePost.Post.ID), "does not follow the author")
	require.Contains(t, good("--pull-above=0", "explain", "@ben", made.CreatePost.Post.ID), "reads merge the author's outbox")
	require.Regexp(t, `follows +1, of whom all are fetched`, good("--pull-above=0", "inspect", "ben"))
	require.Regexp(t, `(?s)^LATE  HOT  MOVED  LATE SCORE  HOT SCORE  AUTHOR  TEXT\n1     1    \+0     -\d\S* +\d\S* +@ann    one\n`+
		`1 post ranked: Kendall's tau 1.000; the first 1 of both share 1\n$`, good("replay", "@ben", "--rank=late"))
	var replayed struct {
		User, Rank, Against   string
		Tau                   float64
		Ranked, First, Shared int
		Posts                 []struct {
			Post, At, AtAgainst, Moved int64
			Score, ScoreAgainst        float64
			Author, Excerpt            string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(good("replay", "ben", "--rank=hot", "--against=late", "--first=5", "--json")), &replayed))
	require.Equal(t, []string{"ben", "hot", "late"}, []string{replayed.User, replayed.Rank, replayed.Against})
	require.Len(t, replayed.Posts, 1)
	require.Equal(t, []string{"ann", "one"}, []string{replayed.Posts[0].Author, replayed.Posts[0].Excerpt})
	require.Negative(t, replayed.Posts[0].ScoreAgainst)
	require.Contains(t, good("replay", "away", "--rank=late"), "0 posts ranked")
	require.Regexp(t, `complete down to +nothing`, good("inspect", "away"))
	out := good("inspect", "ben")
	require.Regexp(t, `entries +1\n`, out)
	require.Regexp(t, `complete down to +the beginning\n`, out)
	id := regexp.MustCompile(`@ben \((\d+)\)`).FindStringSubmatch(out)[1]
	require.Equal(t, out, good("inspect", id), "by id as by handle")

	// Stop the worker, because its monitor would repair the inboxes that the test spoils from
	// here on.
	require.Zero(t, worker.stop())
	require.Equal(t, "1 timeline, 1 entry: 0 missing, 0 extra in 0 timelines\n", good("verify", "ben"))
	spoil := func() {
		t.Helper()
		tl, err := timeline.New(stores.Redis, timeline.Config{})
		require.NoError(t, err)
		var user int64
		_, err = fmt.Sscan(id, &user)
		require.NoError(t, err)
		require.NoError(t, tl.Feeds.Add(t.Context(), timeline.Inbox(user), 7))
	}
	spoil()
	code, out := tell("verify", "--all")
	require.NotZero(t, code)
	require.Contains(t, out, id+": missing [], extra [7]\n")
	require.Contains(t, out, "1 extra in 1 timeline\n")
	require.Contains(t, out, "--repair")
	spoil()
	require.Contains(t, good("verify", "--repair", id), "1 extra in 1 timeline\n", "what verify --all names is what it takes")
	require.Contains(t, good("verify", "--all"), " 0 extra in 0 timelines\n")
	emptyOutbox(t, stores, regexp.MustCompile(`@ann \((\d+)\)`).FindStringSubmatch(good("inspect", "ann"))[1])
	code, out = tell("verify", "--grace=-1s", "ann")
	require.NotZero(t, code)
	require.Regexp(t, `outbox of ann: missing \[\d+\], extra \[\]\n`, out)
	require.Contains(t, good("verify", "--repair", "--grace=-1s", "ann"), "1 outbox differs from what was posted\n")
	require.NotContains(t, good("verify", "--grace=-1s", "ann"), "outbox")
	require.Equal(t, "1 timeline rebuilt\n", good("rebuild", "ben"))
	require.Equal(t, "1 timeline rebuilt; 1 user is away: a timeline is built on return\n", good("rebuild", id, "away"))
	require.Contains(t, good("rebuild", "--all", "--limit=1"), "1 ")

	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nobody of that handle": {[]string{"inspect", "nobody"}, "nobody: "},
		"replayed for nobody":   {[]string{"replay", "nobody", "--rank=late"}, "nobody: There is no such user."},
		"replayed by no rank":   {[]string{"replay", "ben"}, "missing flags: --rank"},
		"no such rank":          {[]string{"replay", "ben", "--rank=soon"}, "there are hot, late"},
		"against no such rank":  {[]string{"replay", "ben", "--rank=hot", "--against=soon"}, "there are hot, late"},
		"the first none":        {[]string{"replay", "ben", "--rank=hot", "--first=0"}, "--first is 0"},
		"explained by no rank":  {[]string{"explain", "ben", made.CreatePost.Post.ID, "--rank=soon"}, "there are hot, late"},
		"nobody of that id":     {[]string{"verify", "7"}, "7: "},
		"no handle":             {[]string{"rebuild", "ben", "no-handle"}, "no-handle: There is no such user"},
		"no post":               {[]string{"explain", "ben", "post"}, `"post" is not the id of a post`},
		"no users":              {[]string{"verify"}, "name users, or --all"},
		"users and all":         {[]string{"rebuild", "ben", "--all"}, "name users, or --all"},
		"a limit of named ones": {[]string{"verify", "ben", "--limit=1"}, "--limit goes with --all"},
		"a limit below nobody":  {[]string{"verify", "--all", "--limit=-1"}, "--limit is -1"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := run(t, settings, append([]string{"feeds"}, c.args...)...)
			require.NotZero(t, code, out)
			require.Contains(t, out, c.says)
			require.NotContains(t, out, "rebuilt")
		})
	}
	interruptFeeds(t, stores, settings)
	require.Zero(t, server.stop())
}

// emptyOutbox replaces an author's outbox in Redis with an empty one that counts as complete.
func emptyOutbox(t *testing.T, stores *storage.Stores, id string) {
	t.Helper()
	tl, err := timeline.New(stores.Redis, timeline.Config{})
	require.NoError(t, err)
	author, err := strconv.ParseInt(id, 10, 64)
	require.NoError(t, err)
	outbox := timeline.Outbox(author)
	require.NoError(t, tl.Feeds.Drop(t.Context(), outbox))
	build, started, err := tl.Feeds.Begin(t.Context(), outbox)
	require.NoError(t, err)
	require.True(t, started)
	done, err := tl.Feeds.Finish(t.Context(), &build, nil, 0)
	require.NoError(t, err)
	require.True(t, done)
}

// interruptFeeds interrupts "feeds verify" while a lock keeps it from reading users.
func interruptFeeds(t *testing.T, stores *storage.Stores, settings []string) {
	t.Helper()
	tx, err := stores.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	p := launch(t, settings, "feeds", "verify", "--all")
	p.await("it waits", func() bool {
		var waiting int
		require.NoError(t, stores.SQL.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.query ILIKE 'SELECT COUNT(%users%'").Scan(&waiting))
		return waiting > 0
	})
	p.signal(syscall.SIGINT)
	require.NotZero(t, p.ended())
	require.Contains(t, p.out.String(), "0 timelines, 0 entries")
	require.Contains(t, p.out.String(), "interrupted")
	require.NotContains(t, p.out.String(), "context canceled")
}

func TestFeedsRefuse(t *testing.T) {
	t.Parallel()
	own := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	code, out := run(t, own, "feeds", "inspect", "ann")
	require.NotZero(t, code)
	require.Contains(t, out, "there is no database yet")
	code, out = run(t, own, "migrate")
	require.Zero(t, code, out)
	code, out = run(t, own, "feeds", "inspect", "ann")
	require.NotZero(t, code)
	require.Contains(t, out, "TIDELINE_REDIS_URL")

	stores := storagetest.Real(t)
	code, out = run(t, []string{
		"TIDELINE_DATABASE_URL=" + storagetest.EmptyPostgresURL(t), "TIDELINE_REDIS_URL=" + storagetest.Config(stores).RedisURL,
	}, "feeds", "inspect", "ann")
	require.NotZero(t, code)
	require.Contains(t, out, "tideline migrate")
}

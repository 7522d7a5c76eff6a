package resume

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/storage"
	"tideline/storage/storagetest"
)

const (
	followers = 50
	authors   = 4
	// traffic is how long authors post at least, between is the time from one fault
	// to the next.
	traffic = time.Minute
	between = 4 * time.Second
)

type user struct{ handle, token string }

// list is a page of posts.
type list struct {
	Nodes    []struct{ ID string }
	PageInfo struct {
		HasNextPage bool
		EndCursor   *string
	}
}

// timeline returns the ids of the whole timeline.
func (u user) timeline(p *process) ([]string, error) {
	return walk(func(after *string) (list, error) {
		var data struct{ Timeline list }
		err := p.call(u.token, `query($after: Cursor) {
			timeline(first: 100, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } }
		}`, map[string]any{"after": after}, &data)
		return data.Timeline, err
	})
}

// posts returns the ids of the author's posts that the user may see.
func (u user) posts(p *process, author user) ([]string, error) {
	return walk(func(after *string) (list, error) {
		var data struct{ User struct{ Posts list } }
		err := p.call(u.token, `query($handle: String!, $after: Cursor) {
			user(handle: $handle) { posts(first: 100, after: $after) { nodes { id } pageInfo { hasNextPage endCursor } } }
		}`, map[string]any{"handle": author.handle, "after": after}, &data)
		return data.User.Posts, err
	})
}

// walk reads a list to its end.
func walk(page func(after *string) (list, error)) (ids []string, err error) {
	for after := (*string)(nil); ; {
		l, err := page(after)
		if err != nil {
			return nil, err
		}
		for _, n := range l.Nodes {
			ids = append(ids, n.ID)
		}
		if after = l.PageInfo.EndCursor; !l.PageInfo.HasNextPage {
			return ids, nil
		}
	}
}

// crowd is a running crowd.mjs.
type crowd struct {
	t     *testing.T
	in    io.Writer
	lines *bufio.Scanner
}

type client struct {
	Held, Twice          []string
	Failed               []any
	Resumed, Invalidated int
}

func newCrowd(t *testing.T, users []user, servers ...*process) *crowd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "crowd.mjs")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	var urls, tokens []string
	for _, s := range servers {
		urls = append(urls, s.url+"/graphql")
	}
	for _, u := range users {
		tokens = append(tokens, u.token)
	}
	c := &crowd{t: t, in: in, lines: bufio.NewScanner(out)}
	c.lines.Buffer(nil, 16<<20)
	setup, err := json.Marshal(map[string]any{"urls": urls, "tokens": tokens, "restless": true})
	require.NoError(t, err)
	c.say(string(setup))
	require.True(t, c.lines.Scan(), "the crowd has ended")
	require.JSONEq(t, `{"ready":true}`, c.lines.Text())
	return c
}

func (c *crowd) say(line string) {
	_, err := fmt.Fprintln(c.in, line)
	require.NoError(c.t, err)
}

func (c *crowd) report() []client {
	c.t.Helper()
	c.say("report")
	require.True(c.t, c.lines.Scan(), "the crowd has ended")
	var answer struct{ Clients []client }
	require.NoError(c.t, json.Unmarshal(c.lines.Bytes(), &answer))
	return answer.Clients
}

// town has users who follow authors, and makes traffic.
type town struct {
	t       *testing.T
	servers []*process
	authors []user
	readers []user
}

// newTown writes its users straight into the database, with sessions: password
// hashes are slow by design.
func newTown(t *testing.T, s *storage.Stores) *town {
	t.Helper()
	w := &town{t: t}
	for i := range authors + followers {
		u := user{fmt.Sprint("user", i), fmt.Sprint("token", i)}
		made := s.DB.User.Create().SetID(int64(i + 1)).SetHandle(u.handle).SetPasswordHash("-")
		if i < authors {
			w.authors = append(w.authors, u)
			made.SetFollowerCount(followers)
		} else {
			w.readers = append(w.readers, u)
			made.SetFollowingCount(authors)
		}
		require.NoError(t, made.Exec(t.Context()))
		hash := sha256.Sum256([]byte(u.token))
		require.NoError(t, s.DB.Session.Create().SetUserID(int64(i+1)).SetTokenHash(hash[:]).
			SetExpiresAt(time.Now().UTC().Add(time.Hour)).Exec(t.Context()))
	}
	for reader := range followers {
		for author := range authors {
			require.NoError(t, s.DB.Follow.Create().SetFollowerID(int64(authors+reader+1)).SetFolloweeID(int64(author+1)).Exec(t.Context()))
		}
	}
	return w
}

// live makes authors post, and now and then delete a post or hide it, until the
// returned function is called. It repeats a call to a dead server at another
// server, or drops it.
func (w *town) live() (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, author := range w.authors {
		wg.Go(func() {
			var mine []string
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(100+rand.IntN(500)) * time.Millisecond):
				}
				p := w.servers[rand.IntN(len(w.servers))]
				var data struct {
					CreatePost struct{ Post struct{ ID string } }
				}
				if p.call(author.token, `mutation($t: String!) { createPost(input: {text: $t}) { post { id } } }`,
					map[string]any{"t": fmt.Sprint("post ", n)}, &data) == nil {
					mine = append(mine, data.CreatePost.Post.ID)
				}
				if len(mine) == 0 || rand.IntN(4) > 0 {
					continue
				}
				id := mine[rand.IntN(len(mine))]
				change := []string{
					`mutation($p: ID!) { deletePost(input: {postId: $p}) { deletedPostId } }`,
					`mutation($p: ID!) { setPostVisibility(input: {postId: $p, visibility: PRIVATE}) { post { id } } }`,
					`mutation($p: ID!) { setPostVisibility(input: {postId: $p, visibility: FOLLOWERS}) { post { id } } }`,
				}[rand.IntN(3)]
				_ = p.call(author.token, change, map[string]any{"p": id}, nil) // the post may be gone
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// converge waits until every timeline has all posts of the authors, and every
// client has what its timeline says, and no post came twice.
func (w *town) converge(c *crowd) {
	w.t.Helper()
	c.say("calm")
	want := w.visible()
	var clients []client
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(500 * time.Millisecond) {
		clients = c.report()
		timelines, err := w.timelines()
		behind := ""
		if err != nil {
			behind = err.Error()
		}
		for i, ids := range timelines {
			behind += difference(fmt.Sprint("timeline ", i), want, ids) + difference(fmt.Sprint("client ", i), want, clients[i].Held)
		}
		if behind == "" {
			break
		}
		require.True(w.t, time.Now().Before(deadline), behind)
	}
	resumed, invalidated := 0, 0
	for i, client := range clients {
		require.Empty(w.t, client.Failed, "client %d", i)
		require.Empty(w.t, client.Twice, "client %d", i)
		resumed, invalidated = resumed+client.Resumed, invalidated+client.Invalidated
	}
	require.NotZero(w.t, resumed)
	w.t.Logf("%d clients, %d posts each, resumed %d times, told to read again %d times",
		len(clients), len(want), resumed, invalidated)
}

// visible returns the posts of all authors that their followers may see.
func (w *town) visible() (ids []string) {
	w.t.Helper()
	for _, author := range w.authors {
		found, err := w.readers[0].posts(w.servers[0], author)
		require.NoError(w.t, err)
		ids = append(ids, found...)
	}
	return ids
}

// timelines returns those of all readers.
func (w *town) timelines() ([][]string, error) {
	all := make([][]string, len(w.readers))
	var g errgroup.Group
	g.SetLimit(4)
	for i, reader := range w.readers {
		g.Go(func() (err error) {
			all[i], err = reader.timeline(w.servers[0])
			return err
		})
	}
	return all, g.Wait()
}

// difference describes which of the wanted posts a reader lacks, and which the
// reader has in addition, or twice.
func difference(who string, want, have []string) string {
	count := map[string]int{}
	for _, id := range want {
		count[id]--
	}
	for _, id := range have {
		count[id]++
	}
	var missing, extra []string
	for id, n := range count {
		switch {
		case n < 0:
			missing = append(missing, id)
		case n > 0:
			extra = append(extra, id)
		}
	}
	if len(missing)+len(extra) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: missing %v, extra %v\n", who, missing, extra)
}

func needNode(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("../node_modules/graphql-ws")
	}
	if err == nil {
		return
	}
	if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("the npm clients are required here (npm ci in e2e): %v", err)
	}
	t.Skipf("SKIPPED, RESUMING NOT TESTED WITH THE NPM CLIENT (npm ci in e2e): %v", err)
}

func settings(c storage.Config) []string {
	return []string{
		"TIDELINE_DATABASE_URL=" + c.DatabaseURL, "TIDELINE_REDIS_URL=" + c.RedisURL,
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=30s",
	}
}

// suffer makes the faults happen one after the other, again and again, during the
// traffic.
func (w *town) suffer(faults ...fault) {
	stop := w.live()
	for began, n := time.Now(), 0; n < len(faults) || time.Since(began) < traffic-between; n++ {
		time.Sleep(between)
		w.comeBack()
		f := faults[n%len(faults)]
		w.t.Log(f.name)
		f.happens()
	}
	time.Sleep(between)
	stop()
}

// comeBack waits for a bounded time until most clients have reconnected: on a slow
// machine there are otherwise only faults.
func (w *town) comeBack() {
	for until := time.Now().Add(patience / 2); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		open := 0
		for _, p := range w.servers {
			open += p.subscriptions()
		}
		if open >= followers*3/4 {
			return
		}
	}
}

type fault struct {
	name    string
	happens func()
}

// Two servers, a worker, and all faults.
func TestNothingIsLostSilently(t *testing.T) {
	t.Parallel()
	needNode(t)
	stores := storagetest.Real(t)
	redis, env := storagetest.Redis(t, stores), settings(storagetest.Config(stores))
	w := newTown(t, stores)
	a := newProcess(t, env, "--addr", "server")
	b := newProcess(t, env, "--addr", "server")
	worker := newProcess(t, env, "--worker-addr", "worker")
	w.servers = []*process{a, b}
	c := newCrowd(t, w.readers, a, b)
	w.suffer(
		fault{"fan-outs are delayed", func() {
			worker.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(1+rand.IntN(3)) * time.Second)
			worker.signal(syscall.SIGCONT)
		}},
		fault{"a worker is killed", func() { worker.kill(); worker.start() }},
		fault{"a server is killed", func() { b.kill(); b.start() }},
		fault{"pub/sub is cut", func() {
			require.NoError(t, stores.Redis.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		}},
		fault{"Redis is wiped", func() { storagetest.Wipe(t, stores) }},
		fault{"Redis is restarted", func() { redis.Restart(t) }},
	)
	w.converge(c)
}

// The embedded default: the process restarts, and its Redis with it.
func TestNothingIsLostSilentlyEmbedded(t *testing.T) {
	t.Parallel()
	needNode(t)
	dir := t.TempDir()
	stores := storagetest.Open(t, storage.Config{DataDir: dir})
	require.NoError(t, stores.Migrate(t.Context()))
	w := newTown(t, stores)
	require.NoError(t, stores.Close())
	p := newProcess(t, []string{"TIDELINE_DATA_DIR=" + dir, "TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=30s"},
		"--addr", "serve")
	w.servers = []*process{p}
	c := newCrowd(t, w.readers, p)
	w.suffer(fault{"the process is killed", func() { p.kill(); p.start() }})
	w.converge(c)
}

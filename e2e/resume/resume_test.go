package resume

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/e2e/worldtest"
	"tideline/storage"
	"tideline/storage/storagetest"
)

const (
	followers = 50
	authors   = 4
	// kits is the number of followers that also have a client of the kit, and gophers the
	// number of other followers that also have a Go client.
	kits    = 10
	gophers = 10
	// between is the time from one fault to the next.
	between = 4 * time.Second
)

// town is the fixture of the test: readers that follow authors, and the traffic of the
// authors.
type town struct {
	t       *testing.T
	servers []*worldtest.Process
	authors []worldtest.User
	readers []worldtest.User
}

// newTown writes the users and their follows directly into the database.
func newTown(t *testing.T, s *storage.Stores) *town {
	t.Helper()
	w := &town{t: t}
	for i := range authors + followers {
		u, err := worldtest.NewUser(t.Context(), s, int64(i+1), fmt.Sprint("user", i))
		require.NoError(t, err)
		for _, author := range w.authors {
			require.NoError(t, worldtest.Follow(t.Context(), s, u, author))
			if i < authors {
				require.NoError(t, worldtest.Follow(t.Context(), s, author, u))
			}
		}
		if i < authors {
			w.authors = append(w.authors, u)
		} else {
			w.readers = append(w.readers, u)
		}
	}
	return w
}

// live makes the authors post, and edit, delete, hide or show posts until stop is called. Some
// posts are private, and some are replies to or reposts of each other's. Failed requests are not repeated. The longer the test runs, the slower
// the authors post, because the clients read everything at the end.
func (w *town) live() (stop func()) {
	done := make(chan struct{})
	slower := max(1, int(*traffic/(3*time.Minute)))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var shown []string // posts of all authors, for their followers
	for _, author := range w.authors {
		wg.Go(func() {
			var mine []string
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(slower*(100+rand.IntN(500))) * time.Millisecond):
				}
				p := w.servers[rand.IntN(len(w.servers))]
				var data struct {
					CreatePost struct{ Post struct{ ID string } }
				}
				mu.Lock()
				other := ""
				if len(shown) > 0 {
					other = shown[max(0, len(shown)-1-rand.IntN(20))]
				}
				mu.Unlock()
				if other != "" && rand.IntN(6) == 0 { // fails if the other post is hidden, as a reply does
					_ = p.Call(w.t.Context(), author.Token, `mutation($p: ID!) { repost(input: {postId: $p, visibility: FOLLOWERS}) { post { id } } }`,
						map[string]any{"p": other}, nil)
					continue
				}
				text, to := fmt.Sprint("post ", n), "FOLLOWERS"
				if rand.IntN(8) == 0 {
					text, to = fmt.Sprint("secret ", n), "PRIVATE"
				}
				variables := map[string]any{"t": text, "to": to}
				if other != "" && rand.IntN(3) == 0 {
					variables["r"] = other
				}
				if p.Call(w.t.Context(), author.Token, `mutation($t: String!, $to: Visibility!, $r: ID) { createPost(input: {text: $t, visibility: $to, replyTo: $r}) { post { id } } }`,
					variables, &data) == nil && to == "FOLLOWERS" {
					mine = append(mine, data.CreatePost.Post.ID)
					mu.Lock()
					shown = append(shown, data.CreatePost.Post.ID)
					mu.Unlock()
				}
				if len(mine) == 0 || rand.IntN(3) > 0 {
					continue
				}
				id := mine[rand.IntN(len(mine))]
				change := []string{
					`mutation($p: ID!, $t: String!) { updatePost(input: {postId: $p, text: $t}) { post { id } } }`,
					`mutation($p: ID!, $t: String!) { updatePost(input: {postId: $p, text: $t}) { post { id } } }`,
					`mutation($p: ID!) { deletePost(input: {postId: $p}) { deletedPostId } }`,
					`mutation($p: ID!) { setPostVisibility(input: {postId: $p, visibility: PRIVATE}) { post { id } } }`,
					`mutation($p: ID!) { setPostVisibility(input: {postId: $p, visibility: FOLLOWERS}) { post { id } } }`,
				}[rand.IntN(5)]
				variables = map[string]any{"p": id}
				if strings.Contains(change, "$t") {
					variables["t"] = fmt.Sprint("edited ", n)
				}
				_ = p.Call(w.t.Context(), author.Token, change, variables, nil) // fails if the post was deleted
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// converge waits until every timeline and every client has all visible posts of the authors,
// with their latest texts. It then checks that no client failed or received a post twice.
func (w *town) converge(crowds ...worldtest.Clients) {
	w.t.Helper()
	for _, c := range crowds {
		require.NoError(w.t, c.Calm())
	}
	texts := w.visible()
	want := slices.Collect(maps.Keys(texts))
	var clients []worldtest.Client
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(500 * time.Millisecond) {
		clients = nil
		for _, c := range crowds {
			report, err := c.Report()
			require.NoError(w.t, err)
			clients = append(clients, report...)
		}
		timelines, err := w.timelines()
		behind := ""
		if err != nil {
			behind = err.Error()
		}
		for i, ids := range timelines {
			behind += worldtest.Difference(fmt.Sprint("timeline ", i), want, ids)
		}
		for i, client := range clients {
			behind += worldtest.Difference(fmt.Sprint("client ", i), want, client.Held)
			if client.Behind {
				behind += fmt.Sprintf("client %d has yet to read\n", i)
			}
			for at, text := range client.Texts { // only clients of the kit and Go clients report texts
				if id := client.Held[at]; text != texts[id] {
					behind += fmt.Sprintf("client %d: %s says %q, not %q\n", i, id, text, texts[id])
					if client.Story != nil && time.Now().After(deadline) {
						behind += client.Story(id)
					}
				}
			}
		}
		if behind == "" {
			break
		}
		if time.Now().After(deadline) {
			require.FailNow(w.t, "they differ", "%s%s", behind, w.stories(want, clients))
		}
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

// stories describes the posts that clients hold although nobody may see them, as their authors see them.
func (w *town) stories(want []string, clients []worldtest.Client) (text string) {
	told := map[string]bool{}
	for _, client := range clients {
		for _, id := range client.Held {
			if told[id] || slices.Contains(want, id) {
				continue
			}
			told[id] = true
			for _, author := range w.authors {
				var data struct{ Post json.RawMessage }
				err := w.servers[0].Call(w.t.Context(), author.Token, `query($p: ID!) { post(id: $p) { author { handle } visibility editedAt root { id visibility } replyTo { id } repostOf { id visibility } } }`,
					map[string]any{"p": id}, &data)
				text += fmt.Sprintf("%s for %s: %s %v\n", id, author.Handle, data.Post, err)
			}
		}
	}
	return text
}

// visible returns the texts, by post id, of all posts that the authors' followers may see.
func (w *town) visible() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, author := range w.authors {
		texts, err := w.readers[0].Texts(w.t.Context(), w.servers[0], author)
		require.NoError(w.t, err)
		maps.Copy(all, texts)
	}
	return all
}

// timelines returns the post ids of the timelines of all readers.
func (w *town) timelines() ([][]string, error) {
	all := make([][]string, len(w.readers))
	var g errgroup.Group
	g.SetLimit(4)
	for i, reader := range w.readers {
		g.Go(func() (err error) {
			all[i], err = reader.Timeline(w.t.Context(), w.servers[0])
			return err
		})
	}
	return all, g.Wait()
}

func settings(c storage.Config) []string {
	return []string{
		"TIDELINE_DATABASE_URL=" + c.DatabaseURL, "TIDELINE_REDIS_URL=" + c.RedisURL,
		"TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=30s",
	}
}

// suffer runs the traffic and meanwhile injects the faults in turn, each at least once.
func (w *town) suffer(faults ...fault) {
	stop := w.live()
	for began, n := time.Now(), 0; n < len(faults) || time.Since(began) < *traffic-between; n++ {
		time.Sleep(between)
		w.comeBack()
		f := faults[n%len(faults)]
		w.t.Log(f.name)
		f.happens()
	}
	time.Sleep(between)
	stop()
}

// comeBack waits until three quarters of the clients have reconnected, for at most
// patience/2. Without it, a slow machine would have no time between faults.
func (w *town) comeBack() {
	for until := time.Now().Add(patience / 2); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		open := 0
		for _, p := range w.servers {
			open += p.Subscriptions(w.t.Context())
		}
		if open >= (followers+kits+gophers)*3/4 {
			return
		}
	}
}

type fault struct {
	name    string
	happens func()
}

// Two servers and a worker, with all kinds of faults.
func TestNothingIsLostSilently(t *testing.T) {
	t.Parallel()
	worldtest.NeedNode(t)
	stores := storagetest.Real(t)
	redis, env := storagetest.Redis(t, stores), settings(storagetest.Config(stores))
	w := newTown(t, stores)
	a := worldtest.NewProcess(t, binary, env, "--addr", "server")
	b := worldtest.NewProcess(t, binary, env, "--addr", "server")
	worker := worldtest.NewProcess(t, binary, env, "--worker-addr", "worker")
	w.servers = []*worldtest.Process{a, b}
	c := worldtest.NewCrowd(t, w.readers, 0, a, b)
	kit := worldtest.NewKitCrowd(t, w.readers[:kits], a, b)
	inGo := worldtest.NewFollowers(t, w.readers[kits:kits+gophers], true, a, b)
	w.suffer(
		fault{"fan-outs are delayed", func() {
			worker.Freeze()
			time.Sleep(time.Duration(1+rand.IntN(3)) * time.Second)
			worker.Thaw()
		}},
		fault{"a worker is killed", func() { worker.Kill(); require.NoError(t, worker.Start()) }},
		fault{"a server is killed", func() { b.Kill(); require.NoError(t, b.Start()) }},
		fault{"pub/sub is cut", func() {
			require.NoError(t, stores.Redis.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		}},
		fault{"Redis is wiped", func() { storagetest.Wipe(t, stores) }},
		fault{"Redis is restarted", func() { redis.Restart(t) }},
	)
	w.converge(c, kit, inGo)
}

// A process with embedded stores. It is killed and restarted, and its Redis with it.
func TestNothingIsLostSilentlyEmbedded(t *testing.T) {
	t.Parallel()
	worldtest.NeedNode(t)
	dir := t.TempDir()
	stores := storagetest.Open(t, storage.Config{DataDir: dir})
	require.NoError(t, stores.Migrate(t.Context()))
	w := newTown(t, stores)
	require.NoError(t, stores.Close())
	p := worldtest.NewProcess(t, binary, []string{"TIDELINE_DATA_DIR=" + dir, "TIDELINE_LOG_FORMAT=json", "TIDELINE_RATE_LIMIT=off", "TIDELINE_REQUEST_TIMEOUT=30s"},
		"--addr", "serve")
	w.servers = []*worldtest.Process{p}
	c := worldtest.NewCrowd(t, w.readers, 0, p)
	kit := worldtest.NewKitCrowd(t, w.readers[:kits], p)
	inGo := worldtest.NewFollowers(t, w.readers[kits:kits+gophers], true, p)
	w.suffer(fault{"the process is killed", func() { p.Kill(); require.NoError(t, p.Start()) }})
	w.converge(c, kit, inGo)
}

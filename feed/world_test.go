package feed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

const (
	inboxCap  = 300
	outboxCap = 100
)

// world is a whole backend on empty stores.
type world struct {
	t     *testing.T
	ctx   context.Context
	s     *storage.Stores
	ids   *feed.IDs
	tl    *timeline.Store
	queue *queue.Queue
	pub   *live.Publisher
	hub   *live.Hub
	feed  *feed.Feed
}

// each runs the test on every engine, with workers running. On all of them the
// rules are the same.
func each(t *testing.T, test func(w *world)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := newWorld(t, s)
		w.work()
		test(w)
	})
}

func newWorld(t *testing.T, s *storage.Stores, change ...func(*feed.Config)) *world {
	w := &world{t: t, ctx: t.Context(), s: s}
	var err error
	w.ids, err = feed.OpenIDs(w.ctx, s.DB)
	require.NoError(t, err)
	w.tl, err = timeline.New(s.Redis, timeline.Config{InboxCap: inboxCap, OutboxCap: outboxCap})
	require.NoError(t, err)
	w.queue, err = queue.New(s.DB, s.Redis, queue.Config{SweepEvery: 50 * time.Millisecond})
	require.NoError(t, err)
	w.pub = live.NewPublisher(s.Redis, s.Sharded)
	w.hub = live.NewHub(s.Redis, live.HubConfig{Sharded: s.Sharded})
	cfg := feed.Config{
		DB: s.DB, Dialect: s.Dialect, Timelines: w.tl, Queue: w.queue, Hub: w.hub, Publisher: w.pub, IDs: w.ids,
		InboxCap: inboxCap, OutboxCap: outboxCap,
	}
	for _, fn := range change {
		fn(&cfg)
	}
	w.feed, err = feed.New(w.ctx, cfg)
	require.NoError(t, err)
	w.run(w.ids.Run) // a busy machine takes longer than a lease
	w.run(w.hub.Run)
	w.run(w.feed.Run)
	return w
}

// work starts the workers.
func (w *world) work() {
	ws, err := workers.New(workers.Config{
		DB: w.s.DB, Feed: w.feed, Timelines: w.tl, Queue: w.queue, Publisher: w.pub, PageSize: 7,
	})
	require.NoError(w.t, err)
	w.run(ws.Run)
}

// run runs a loop until the test ends, and waits for it.
func (w *world) run(loop func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	done := make(chan struct{})
	go func() { defer close(done); _ = loop(ctx) }()
	w.t.Cleanup(func() { stop(); <-done })
}

// settle waits until all work that follows from what was done is done.
func (w *world) settle() {
	w.t.Helper()
	ctx, stop := context.WithTimeout(w.ctx, 30*time.Second)
	defer stop()
	require.NoError(w.t, w.queue.Drain(ctx))
}

// user makes a user without the cost of a password.
func (w *world) user(handle string) feed.Viewer {
	w.t.Helper()
	id, err := w.ids.Next()
	require.NoError(w.t, err)
	require.NoError(w.t, w.s.DB.User.Create().SetID(id).SetHandle(handle).SetName(handle).SetPasswordHash("-").Exec(w.ctx))
	return feed.Viewer{ID: id}
}

func (w *world) users(n int) []feed.Viewer {
	w.t.Helper()
	list := make([]feed.Viewer, n)
	for i := range list {
		list[i] = w.user(fmt.Sprintf("user%d", i))
	}
	return list
}

func (w *world) follow(follower, followee feed.Viewer) {
	w.t.Helper()
	_, err := w.feed.Follow(w.ctx, follower, followee.ID)
	require.NoError(w.t, err)
}

func (w *world) befriend(a, b feed.Viewer) {
	w.t.Helper()
	w.follow(a, b)
	w.follow(b, a)
}

func (w *world) post(author feed.Viewer, v schema.Visibility) int64 {
	w.t.Helper()
	p, err := w.feed.CreatePost(w.ctx, author, feed.Draft{Text: "hello", Visibility: &v})
	require.NoError(w.t, err)
	return p.ID
}

// history writes n posts straight into the table, oldest first, as if they had
// been posted before anybody looked.
func (w *world) history(author feed.Viewer, n int) []int64 {
	w.t.Helper()
	ids := make([]int64, n)
	rows := make([]*ent.PostCreate, n)
	for i := range ids {
		var err error
		ids[i], err = w.ids.Next()
		require.NoError(w.t, err)
		rows[i] = w.s.DB.Post.Create().SetID(ids[i]).SetAuthorID(author.ID).SetText("then").SetVisibility(schema.Public)
	}
	for chunk := range slices.Chunk(rows, 500) {
		require.NoError(w.t, w.s.DB.Post.CreateBulk(chunk...).Exec(w.ctx))
	}
	w.posted(author)
	return ids
}

// posted brings the author up to date after posts were written into the table.
func (w *world) posted(author feed.Viewer) {
	w.t.Helper()
	_, err := w.s.SQL.ExecContext(w.ctx,
		`UPDATE users SET last_post_id = (SELECT max(id) FROM posts WHERE author_id = $1) WHERE id = $1`, author.ID)
	require.NoError(w.t, err)
}

// timeline is the viewer's newest n entries in one page.
func (w *world) timeline(v feed.Viewer, n int) []int64 {
	w.t.Helper()
	c, err := w.feed.Timeline(w.ctx, v, feed.Page{First: &n}, feed.Latest)
	require.NoError(w.t, err)
	return postIDs(c)
}

func postIDs(c *feed.Connection[ent.Post]) []int64 {
	ids := []int64{}
	for _, p := range c.Nodes() {
		ids = append(ids, p.ID)
	}
	return ids
}

// walk pages through the whole timeline, downwards.
func (w *world) walk(v feed.Viewer, size int, between func(page int)) []int64 {
	w.t.Helper()
	var all []int64
	var after *string
	for page := 0; ; page++ {
		c, err := w.feed.Timeline(w.ctx, v, feed.Page{First: &size, After: after}, feed.Latest)
		require.NoError(w.t, err)
		all = append(all, postIDs(c)...)
		if !c.HasNextPage {
			return all
		}
		require.Len(w.t, c.Edges, size, "a page is full while there is more")
		after = &c.Edges[size-1].Cursor
		if between != nil {
			between(page)
		}
	}
}

// ready waits until the viewer's inbox is built, so that reads come from Redis.
func (w *world) ready(v feed.Viewer) {
	w.t.Helper()
	w.timeline(v, 1)
	require.Eventually(w.t, func() bool {
		_, covered, err := w.tl.Page(w.ctx, timeline.Inbox(v.ID), timeline.Range{})
		return err == nil && covered.State == timeline.Ready
	}, 30*time.Second, 5*time.Millisecond)
}

// newestFirst is ids in the order of a timeline.
func newestFirst(ids ...int64) []int64 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

// eachIdle is each without workers: nothing follows from a commit.
func eachIdle(t *testing.T, test func(w *world)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) { test(newWorld(t, s)) })
}

// Package feedtest gives tests a complete backend on real stores.
package feedtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/job"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/queue"
	"tideline/server/backend"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// The caps of a World that Each or Idle creates: the smallest that are allowed.
const (
	InboxCap  = 300
	OutboxCap = 100
)

// CountsEvery is counts.Config.Every of each World.
const CountsEvery = 10 * time.Millisecond

// Grace is how long a deleted account can be restored.
const Grace = time.Hour

// Options change the defaults of a World.
type Options struct {
	// DB replaces the ent client of the stores, if not nil.
	DB            *ent.Client
	Timelines     timeline.Config
	Queue         queue.Config
	Policy        home.Policy
	Observe       func(hit bool)
	LargeAudience int
	MaxText       int
	// Issuers, NoSignUp and NoPasswords are fields of login.Config.
	Issuers               *identity.Verifier
	NoSignUp, NoPasswords bool
	// Webhooks is a field of feed.Config and of account.Config.
	Webhooks *webhook.Outbox
	// Now is the clock of the World, except for the queue and the ids. Defaults to time.Now.
	Now func() time.Time
	// NowEverywhere makes the queue and the ids use Now, too. If Now jumps by a minute, the lease
	// of ids expires and must be renewed.
	NowEverywhere bool
}

// World is a test fixture: one process with the whole backend, on stores that it may share with
// other Worlds.
type World struct {
	testing.TB
	*backend.Backend
	Ctx context.Context
	// Stores are the stores as they were given, also if Options.DB replaces their client.
	Stores *storage.Stores
	now    func() time.Time
}

// Avatars are the hosts of pictures in every World.
var Avatars = account.AvatarHosts{"img.example.org"}

// New creates a World in which nothing runs yet.
func New(t testing.TB, s *storage.Stores, o Options) *World {
	t.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	idNow := time.Now
	if o.NowEverywhere {
		o.Queue.Now, idNow = o.Now, o.Now
	}
	w := &World{TB: t, Ctx: t.Context(), Stores: s, now: o.Now}
	generator, err := ids.Open(w.Ctx, ids.Config{DB: s.DB, Now: idNow})
	require.NoError(t, err)
	replaced := *s
	if o.DB != nil {
		replaced.DB = o.DB
	}
	w.Backend, err = backend.New(&replaced, backend.Config{
		IDs: generator, Timelines: o.Timelines, Queue: o.Queue, Policy: o.Policy, Issuers: o.Issuers, NoSignUp: o.NoSignUp,
		NoPasswords: o.NoPasswords, Avatars: Avatars, DeletionGrace: Grace, LargeAudience: o.LargeAudience, MaxText: o.MaxText,
		CountsEvery: CountsEvery, Outbox: o.Webhooks, ObserveRead: o.Observe, Now: o.Now,
	})
	require.NoError(t, err)
	return w
}

// Each runs the test on every engine, in a World with workers.
func Each(t *testing.T, test func(w *World)) {
	EachIdle(t, func(w *World) {
		w.Work()
		test(w)
	})
}

// EachIdle is like Each, but without workers: jobs stay in the queue after a commit.
func EachIdle(t *testing.T, test func(w *World)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		test(Idle(t, s, Options{}))
	})
}

// Idle creates a World with the smallest caps, in which everything except the workers runs.
func Idle(t testing.TB, s *storage.Stores, o Options) *World {
	o.Timelines.InboxCap, o.Timelines.OutboxCap = InboxCap, OutboxCap
	if o.Queue.SweepEvery == 0 {
		o.Queue.SweepEvery = 50 * time.Millisecond
	}
	w := New(t, s, o)
	w.Run(w.IDs.Run) // a busy machine takes longer than a lease
	w.Run(w.Hub.Run)
	w.Run(w.Home.Run)
	return w
}

// Now returns the time of the World's clock.
func (w *World) Now() time.Time { return w.now() }

// Work starts workers whose pages have seven followers. The returned function stops them and
// waits until they have stopped.
func (w *World) Work() (stop func()) {
	cfg := w.WorkersConfig()
	cfg.PageSize, cfg.PartSize = 7, 3
	ws, err := workers.New(cfg)
	require.NoError(w, err)
	return w.Run(ws.Run)
}

// Run runs a loop until stop is called or the test ends, and waits for it.
func (w *World) Run(loop func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Ctx))
	done := make(chan struct{})
	go func() { defer close(done); _ = loop(ctx) }()
	stop = func() { cancel(); <-done }
	w.Cleanup(stop)
	return stop
}

// Drain waits until no job is outstanding. Workers must be running in some process.
func (w *World) Drain() {
	w.Helper()
	require.Eventually(w, func() bool {
		left, err := w.Stores.DB.Job.Query().Where(job.Dead(false)).Exist(w.Ctx)
		return err == nil && !left
	}, time.Minute, 5*time.Millisecond)
}

// SignUp creates a user with a password and returns the viewer of its first session.
func (w *World) SignUp(handle, password string) session.Viewer {
	w.Helper()
	auth, err := w.Login.SignUp(w.Ctx, handle, password, "")
	require.NoError(w, err)
	v, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
	require.NoError(w, err)
	return v
}

// RequireCode fails the test unless the error has the code.
func (w *World) RequireCode(code refusal.Code, err error) {
	w.Helper()
	require.Equal(w, code, refusal.CodeOf(err), "%v", err)
}

// RequireRefused fails the test unless the credential is refused.
func (w *World) RequireRefused(credential string) {
	w.Helper()
	_, _, err := w.Login.Authenticate(w.Ctx, credential)
	require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err), "%q: %v", credential, err)
}

// User creates a user without the cost of a password hash.
func (w *World) User(handle string) session.Viewer {
	w.Helper()
	id, err := w.IDs.Next()
	require.NoError(w, err)
	require.NoError(w, w.Stores.DB.User.Create().SetID(id).SetHandle(handle).SetName(handle).SetPasswordHash("-").Exec(w.Ctx))
	return session.Viewer{ID: id}
}

// Users creates n users.
func (w *World) Users(n int) []session.Viewer {
	w.Helper()
	list, rows := make([]session.Viewer, n), make([]*ent.UserCreate, n)
	for i := range list {
		id, err := w.IDs.Next()
		require.NoError(w, err)
		list[i] = session.Viewer{ID: id}
		handle := fmt.Sprintf("user%d", i)
		rows[i] = w.Stores.DB.User.Create().SetID(id).SetHandle(handle).SetName(handle).SetPasswordHash("-")
	}
	for chunk := range slices.Chunk(rows, 500) {
		require.NoError(w, w.Stores.DB.User.CreateBulk(chunk...).Exec(w.Ctx))
	}
	return list
}

// Follow makes one user follow another.
func (w *World) Follow(follower, followee session.Viewer) {
	w.Helper()
	_, err := w.Feed.Follow(w.Ctx, follower, followee.ID)
	require.NoError(w, err)
}

// Befriend makes two users follow each other.
func (w *World) Befriend(a, b session.Viewer) {
	w.Helper()
	w.Follow(a, b)
	w.Follow(b, a)
}

// Post creates a post and returns its id.
func (w *World) Post(author session.Viewer, v schema.Visibility) int64 {
	w.Helper()
	p, err := w.Feed.CreatePost(w.Ctx, author, feed.Draft{Text: "hello", Visibility: &v})
	require.NoError(w, err)
	return p.ID
}

// History inserts n posts into the table, oldest first, without a fan-out, as if they were older
// than any read.
func (w *World) History(author session.Viewer, n int) []int64 {
	w.Helper()
	posts := make([]int64, n)
	rows := make([]*ent.PostCreate, n)
	for i := range posts {
		var err error
		posts[i], err = w.IDs.Next()
		require.NoError(w, err)
		rows[i] = w.Stores.DB.Post.Create().SetID(posts[i]).SetAuthorID(author.ID).SetText("then").SetVisibility(schema.Public)
	}
	for chunk := range slices.Chunk(rows, 500) {
		require.NoError(w, w.Stores.DB.Post.CreateBulk(chunk...).Exec(w.Ctx))
	}
	w.Posted(author)
	return posts
}

// Posted updates the author's row after posts were inserted into the table.
func (w *World) Posted(author session.Viewer) {
	w.Helper()
	_, err := w.Stores.SQL.ExecContext(w.Ctx,
		`UPDATE users SET last_post_id = (SELECT max(id) FROM posts WHERE author_id = $1) WHERE id = $1`, author.ID)
	require.NoError(w, err)
}

// PostAged inserts a post of the given age that has reached no inbox.
func (w *World) PostAged(author session.Viewer, age time.Duration) int64 {
	w.Helper()
	id, err := w.IDs.Next()
	require.NoError(w, err)
	id -= age.Milliseconds() << 12
	require.NoError(w, w.Stores.DB.Post.Create().SetID(id).SetAuthorID(author.ID).SetText("late").
		SetVisibility(schema.Public).Exec(w.Ctx))
	w.Posted(author)
	return id
}

// Timeline returns the viewer's newest n entries from one page.
func (w *World) Timeline(v session.Viewer, n int) []int64 {
	w.Helper()
	c, err := w.Home.Timeline(w.Ctx, v, paging.Page{First: &n}, home.Latest)
	require.NoError(w, err)
	return PostIDs(c)
}

// Top returns the cursor of the viewer's newest entry.
func (w *World) Top(v session.Viewer) *string {
	w.Helper()
	one := 1
	c, err := w.Home.Timeline(w.Ctx, v, paging.Page{First: &one}, home.Latest)
	require.NoError(w, err)
	require.Len(w, c.Edges, 1)
	return &c.Edges[0].Cursor
}

// PostIDs returns the ids of the posts on a page.
func PostIDs(c *paging.Connection[ent.Post]) []int64 {
	posts := []int64{}
	for _, p := range c.Nodes() {
		posts = append(posts, p.ID)
	}
	return posts
}

// Walk reads the whole timeline page by page, from newest to oldest. It calls between, if not
// nil, after every page except the last.
func (w *World) Walk(v session.Viewer, size int, between func(page int)) []int64 {
	w.Helper()
	var all []int64
	var after *string
	for page := 0; ; page++ {
		c, err := w.Home.Timeline(w.Ctx, v, paging.Page{First: &size, After: after}, home.Latest)
		require.NoError(w, err)
		all = append(all, PostIDs(c)...)
		if !c.HasNextPage {
			return all
		}
		require.Len(w, c.Edges, size, "a page is full while there is more")
		after = &c.Edges[size-1].Cursor
		if between != nil {
			between(page)
		}
	}
}

// AwaitInbox waits until the viewer's inbox is built, so that reads come from Redis. On a busy
// machine Redis may answer a read too late; a later read requests the inbox again. AwaitInbox
// reads seldom while the inbox is being built, because each read requests a build.
func (w *World) AwaitInbox(v session.Viewer) {
	w.Helper()
	w.Timeline(v, 1)
	one, read := 1, time.Now()
	require.Eventually(w, func() bool {
		_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(v.ID), timeline.Range{})
		if covered.State == timeline.Missing || time.Since(read) > time.Second {
			_, _ = w.Home.Timeline(w.Ctx, v, paging.Page{First: &one}, home.Latest)
			read = time.Now()
		}
		return err == nil && covered.State == timeline.Ready
	}, time.Minute, 5*time.Millisecond)
}

// NewestFirst returns the ids in the order of a timeline.
func NewestFirst(posts ...int64) []int64 {
	posts = slices.Clone(posts)
	slices.Sort(posts)
	slices.Reverse(posts)
	return posts
}

package workers_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/internal/batch"
	"tideline/internal/redisclient"
	"tideline/live"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// audience is an author with followers, some of whom are active, and workers whose pages have five
// followers. More than twenty followers are a large audience.
type audience struct {
	*feedtest.World
	partSize int // of the workers; 0: the default
	// observeHealth gets each report of the monitor. By default, reports go to health while a test
	// waits for one there.
	observeHealth func(workers.Health)
	claimIdle     time.Duration
	pageSize      int                                             // of the workers; 0: 5
	masters       func(context.Context) (map[string]error, error) // how the workers check Redis; nil: as the product does
	author        session.Viewer
	active        []int64
	fanouts       chan workers.FanOutReport
	health        chan workers.Health
}

func newAudience(t *testing.T, s *storage.Stores, followers, active int) *audience {
	a := newIdleAudience(t, s, followers, active)
	a.work(t, s.Redis)
	return a
}

func newIdleAudience(t *testing.T, s *storage.Stores, followers, active int) *audience {
	return newIdleAudienceOf(t, s, followers, active, queue.Config{})
}

// newIdleAudienceOf is newIdleAudience with its own queue settings.
func newIdleAudienceOf(t *testing.T, s *storage.Stores, followers, active int, cfg queue.Config) *audience {
	a := &audience{
		World:   feedtest.New(t, s, feedtest.Options{LargeAudience: 20, Queue: cfg}),
		fanouts: make(chan workers.FanOutReport, 64), health: make(chan workers.Health),
		claimIdle: 3 * time.Second,
	}
	a.observeHealth = func(h workers.Health) { offer(a.health, h) }
	users := make([]*ent.UserCreate, followers+1)
	for i := range users {
		id, err := a.IDs.Next()
		require.NoError(t, err)
		users[i] = s.DB.User.Create().SetID(id).SetHandle(fmt.Sprintf("u%d", i)).SetPasswordHash("-")
		if i == 0 {
			users[i].SetFollowerCount(followers)
		}
	}
	rows, err := s.DB.User.CreateBulk(users...).Save(a.Ctx)
	require.NoError(t, err)
	a.author = session.Viewer{ID: rows[0].ID}
	follows := make([]*ent.FollowCreate, followers)
	for i := range follows {
		follows[i] = s.DB.Follow.Create().SetFollowerID(rows[i+1].ID).SetFolloweeID(rows[0].ID)
	}
	require.NoError(t, s.DB.Follow.CreateBulk(follows...).Exec(a.Ctx))
	for i, u := range rows[1 : active+1] {
		// Each follower was last active an hour before the previous one.
		then := time.Now().Add(-time.Duration(i) * time.Hour)
		tl, err := timeline.New(s.Redis, timeline.Config{Now: func() time.Time { return then }})
		require.NoError(t, err)
		a.active = append(a.active, u.ID)
		_, err = tl.Visits.Visit(a.Ctx, u.ID)
		require.NoError(t, err)
		require.NoError(t, a.Home.Reader.BuildInbox(a.Ctx, u.ID))
	}
	return a
}

// work starts the workers of a process with this connection to Redis. also may add handlers to its
// queue.
func (a *audience) work(t *testing.T, rdb redisclient.Client, also ...func(q *queue.Queue)) *workers.Workers {
	shared := batch.Client(rdb)
	tl, err := timeline.New(shared, timeline.Config{})
	require.NoError(t, err)
	q, err := queue.New(a.Stores.DB, rdb, queue.Config{SweepEvery: 50 * time.Millisecond, ClaimIdle: a.claimIdle})
	require.NoError(t, err)
	cfg := a.WorkersConfig()
	cfg.Timelines, cfg.Queue, cfg.Publisher = tl, q, live.NewPublisher(shared, a.Stores.Sharded)
	cfg.PageSize, cfg.PartSize, cfg.KeepEvery, cfg.WatchEvery = cmp.Or(a.pageSize, 5), a.partSize, time.Nanosecond, 50*time.Millisecond
	if a.masters != nil {
		cfg.Masters = a.masters
	}
	cfg.Observe = func(f workers.FanOutReport) { a.fanouts <- f }
	cfg.ObserveHealth = a.observeHealth
	w, err := workers.New(cfg)
	require.NoError(t, err)
	for _, add := range also {
		add(q)
	}
	a.Run(w.Run)
	return w
}

// offer sends v if a receiver is waiting.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// post writes a post, waits until the fan-out is done, and returns its report.
func (a *audience) post(t *testing.T) (int64, workers.FanOutReport) {
	public := schema.Public
	p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
	require.NoError(t, err)
	a.Drain()
	return p.ID, <-a.fanouts
}

// requireReached requires that the post is in the inboxes of all active followers.
func (a *audience) requireReached(t *testing.T, post int64) {
	t.Helper()
	for _, u := range a.active {
		ids, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(u), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Ready, covered.State)
		require.Contains(t, ids, post)
	}
}

// othersRead makes n users active who do not follow the author.
func (a *audience) othersRead(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		_, err := a.Timelines.Visits.Visit(a.Ctx, int64(i+1))
		require.NoError(t, err)
	}
}

// requireNowhere requires that the post is in no inbox of an active follower.
func (a *audience) requireNowhere(t *testing.T, post int64) {
	t.Helper()
	for _, u := range a.active {
		ids, _, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(u), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.NotContains(t, ids, post)
	}
}

// The author of a post is gone when its fan-out runs. There is nothing left to do.
func TestFanOutOfAnAuthorWhoIsGone(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{})
		author := w.User("author")
		w.Post(author, schema.Public)
		require.NoError(t, s.DB.User.DeleteOneID(author.ID).Exec(w.Ctx))
		w.Work()
		w.Drain()
		require.Zero(t, s.DB.Job.Query().CountX(w.Ctx))
	})
}

// The posts of a suspended author are in no timeline, so a fan-out after the suspension adds none
// to an inbox.
func TestFanOutOfASuspendedAuthor(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 12, 7)
		public := schema.Public
		_, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
		require.NoError(t, err)
		require.NoError(t, s.DB.User.UpdateOneID(a.author.ID).SetHidden(true).Exec(a.Ctx))
		a.work(t, s.Redis)
		a.Drain()
		require.Zero(t, (<-a.fanouts).Pushed)
		for _, u := range a.active {
			ids, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(u), timeline.Range{Limit: 10})
			require.NoError(t, err)
			require.Equal(t, timeline.Ready, covered.State)
			require.Empty(t, ids)
		}
	})
}

// A fan-out that walks the followers and a fan-out that walks the active users both reach exactly
// the active followers.
func TestEveryActiveFollowerIsReached(t *testing.T) {
	t.Parallel()
	for _, active := range []int{0, 3, 30, 42} {
		t.Run(fmt.Sprintf("%d of 42", active), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newAudience(t, s, 42, active)
				post, f := a.post(t)
				a.requireReached(t, post)
				require.Equal(t, [3]int{42, active, 0}, [3]int{f.Followers, f.Pushed, f.Pulled})
			})
		})
	}
}

// The receipt counts pushed and pulled followers in the same way, and is updated when a post is
// shown to more followers.
func TestReceipt(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newAudience(t, s, 5, 2)
		receipt := func(id int64) [3]int {
			a.Drain()
			d, err := s.DB.Delivery.Get(a.Ctx, id)
			require.NoError(t, err)
			require.True(t, d.Done)
			return [3]int{d.Pushed, d.Pulled, d.Skipped}
		}
		private := schema.Private
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &private})
		require.NoError(t, err)
		require.Equal(t, [3]int{0, 0, 5}, receipt(p.ID))
		for _, v := range []schema.Visibility{schema.Followers, schema.Private} {
			_, err = a.Feed.SetVisibility(a.Ctx, a.author, p.ID, v)
			require.NoError(t, err)
			require.Equal(t, [3]int{2, 0, 3}, receipt(p.ID))
		}
		for pushed := true; pushed; { // the balancer may have come between
			require.NoError(t, s.DB.User.UpdateOneID(a.author.ID).SetFanOutMode(user.FanOutModePULL).Exec(a.Ctx))
			p, err = a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
			require.NoError(t, err)
			got := receipt(p.ID)
			if pushed = got[0] > 0; !pushed {
				require.Equal(t, [3]int{0, 2, 3}, got)
			}
		}
	})
}

// In each walk, for push and for pull, the receipt is the same if some of the followers mute the
// author, whether these are active or not.
func TestReceiptsDoNotTellWhoMutesTheAuthor(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ followers, active, others int }{
		"one page of followers": {4, 2, 0}, "the active users": {42, 1, 0}, "the followers, by what is in memory": {42, 30, 0},
		"the followers, by look-ups": {12, 6, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newIdleAudience(t, s, of.followers, of.active)
				a.othersRead(t, of.others)
				a.work(t, s.Redis)
				receipt := func() (post int64, counts [4]any) {
					post, _ = a.post(t)
					d, err := s.DB.Delivery.Get(a.Ctx, post)
					require.NoError(t, err)
					return post, [4]any{d.Pushed, d.Pulled, d.Skipped, d.Done}
				}
				pulled := func() (post int64, counts [4]any) {
					for counts[0] != 0 { // the balancer may have come between
						require.NoError(t, s.DB.User.UpdateOneID(a.author.ID).SetFanOutMode(user.FanOutModePULL).Exec(a.Ctx))
						post, counts = receipt()
					}
					return post, counts
				}
				_, push := receipt()
				require.Equal(t, [4]any{of.active, 0, of.followers - of.active, true}, push)
				_, pull := pulled()
				require.Equal(t, [4]any{0, of.active, of.followers - of.active, true}, pull)

				away := s.DB.Follow.Query().Where(follow.FollowerIDNotIn(a.active...)).FirstX(a.Ctx).FollowerID
				for _, muter := range []int64{a.active[0], away} {
					require.NoError(t, s.DB.Mute.Create().SetMuterID(muter).SetMutedID(a.author.ID).Exec(a.Ctx))
				}
				_, counts := pulled()
				require.Equal(t, pull, counts)
				require.NoError(t, s.DB.User.UpdateOneID(a.author.ID).SetFanOutMode(user.FanOutModePUSH).Exec(a.Ctx))
				post, counts := receipt()
				require.Equal(t, push, counts)
				ids, _, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(a.active[0]), timeline.Range{Limit: 10})
				require.NoError(t, err)
				require.NotContains(t, ids, post, "it is counted, and not pushed")
			})
		})
	}
}

// pushHook is a hook on the pipelines that push a post to inboxes, or remove one. It counts the
// inboxes. before gets the number of the pipeline, from 1, and may block it or make it fail.
type pushHook struct {
	takes              bool
	pipelines, inboxes atomic.Int64
	before             func(ctx context.Context, n int64, post string) error
	other              func(ctx context.Context) error // called before every other command, if set
}

func (p *pushHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *pushHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := p.anything(ctx); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (p *pushHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := p.anything(ctx); err != nil {
			return err
		}
		var into int64
		post := ""
		for _, c := range cmds {
			args, command, key := c.Args(), "zadd", 1
			if p.takes {
				command, key = "evalsha", 3
			}
			if strings.EqualFold(c.Name(), command) && strings.HasPrefix(fmt.Sprint(args[key]), "tl:{i") {
				into, post = into+1, fmt.Sprint(args[len(args)-1])
			}
		}
		if into > 0 && (into > 1 || !p.takes) { // the author's own inbox has a pipeline of its own
			if err := p.before(ctx, p.pipelines.Add(1), post); err != nil {
				return err
			}
			p.inboxes.Add(into)
		}
		return next(ctx, cmds)
	}
}

func (p *pushHook) anything(ctx context.Context) error {
	if p.other == nil {
		return nil
	}
	return p.other(ctx)
}

// An interrupted fan-out resumes after the pages that were done.
func TestInterruptedFanOutGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ followers, active int }{{84, 20}, {42, 42}} {
		t.Run(fmt.Sprintf("%d of %d", c.active, c.followers), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newIdleAudience(t, s, c.followers, c.active)
				hook := &pushHook{before: func(_ context.Context, n int64, _ string) error {
					if n == 4 {
						return errors.New("the worker fails here")
					}
					return nil
				}}
				s.Redis.AddHook(hook)
				a.work(t, s.Redis)
				post, f := a.post(t)
				a.requireReached(t, post)
				require.GreaterOrEqual(t, f.Pushed, c.active)
				require.LessOrEqual(t, hook.inboxes.Load(), int64(c.active+5), "not all over again")
			})
		})
	}
}

// The most recently active follower gets a post in the first page, in each walk of the follower
// scan. Nobody is left out if the worker fails after that page.
func TestLatestActiveComeFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                      string
		followers, active, others int
	}{
		{"few are active", 220, 10, 0},
		{"all are active", 42, 42, 0},
		{"many others are active", 20, 20, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newIdleAudience(t, s, c.followers, c.active)
				a.othersRead(t, c.others)
				first := &firstPush{fails: 2}
				s.Redis.AddHook(first)
				a.work(t, s.Redis)
				post, f := a.post(t)
				// The most recently active follower has the oldest follow, the last in the index.
				require.Equal(t, timeline.Inbox(a.active[0]).String()+":z", first.into[0])
				require.LessOrEqual(t, len(first.into), 20, "a page, not all at once")
				require.GreaterOrEqual(t, f.Pushed, c.active)
				require.LessOrEqual(t, f.Pushed, c.active+2, "those who read within the last minutes are reached again")
				a.requireReached(t, post)
			})
		})
	}
}

// firstPush is a hook that records the inboxes of the first pipeline of pushes, and makes pipeline
// number fails fail.
type firstPush struct {
	into  []string
	n     int
	fails int
}

func (p *firstPush) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *firstPush) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *firstPush) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var into []string
		for _, c := range cmds {
			if key := fmt.Sprint(append(c.Args(), "")[1]); c.Name() == "zadd" && strings.HasPrefix(key, "tl:{i") {
				into = append(into, key)
			}
		}
		if len(into) > 0 {
			if p.n++; p.n == p.fails {
				return errors.New("the worker fails here")
			}
			if p.into == nil {
				p.into = into
			}
		}
		return next(ctx, cmds)
	}
}

// A small fan-out does not wait for large ones, even if many of these are stuck.
func TestSmallFanOutDoesNotWaitForLargeOnes(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 42, 42)
		author := a.active[0]
		for _, fan := range a.active[1:11] {
			require.NoError(t, s.DB.Follow.Create().SetFollowerID(fan).SetFolloweeID(author).Exec(a.Ctx))
		}
		require.NoError(t, s.DB.User.UpdateOneID(author).SetFollowerCount(10).Exec(a.Ctx))
		var last atomic.Int64 // of the large fan-outs
		last.Store(math.MaxInt64)
		stuck, free := make(chan struct{}, 1), make(chan struct{})
		s.Redis.AddHook(&pushHook{before: func(_ context.Context, _ int64, post string) error {
			if id, _ := strconv.ParseInt(post, 10, 64); id <= last.Load() {
				offer(stuck, struct{}{})
				<-free
			}
			return nil
		}})
		a.work(t, s.Redis)
		for i := range 4 {
			p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "to very many"})
			require.NoError(t, err)
			if i == 3 {
				last.Store(p.ID)
			}
		}
		<-stuck
		p, err := a.Feed.CreatePost(a.Ctx, session.Viewer{ID: author}, feed.Draft{Text: "to a few"})
		require.NoError(t, err)
		f := <-a.fanouts
		require.Equal(t, [3]any{p.ID, 10, 10}, [3]any{f.Post, f.Followers, f.Pushed})
		close(free)
		a.Drain()
		for range 4 {
			require.Equal(t, 42, (<-a.fanouts).Pushed)
		}
	})
}

// A large fan-out completes beside a small job that never ends, and does not become slower with
// every page.
func TestLargeFanOutGetsDoneBesideSmallJobs(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	a := newIdleAudience(t, s, 1000, 0)
	rows, err := s.DB.Follow.Query().All(a.Ctx)
	require.NoError(t, err)
	for _, f := range rows {
		_, err := a.Timelines.Visits.Visit(a.Ctx, f.FollowerID)
		require.NoError(t, err)
	}
	begun, ends := make(chan struct{}), make(chan struct{})
	a.work(t, s.Redis, func(q *queue.Queue) {
		q.Handle("never ends", func(context.Context, *queue.Job) error { close(begun); <-ends; return nil })
	})
	t.Cleanup(func() { close(ends) })
	tx, err := s.DB.Tx(a.Ctx)
	require.NoError(t, err)
	require.NoError(t, a.Queue.Enqueue(a.Ctx, tx, queue.Small, "never ends", nil))
	require.NoError(t, tx.Commit())
	<-begun
	_, err = a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
	require.NoError(t, err)
	select {
	case f := <-a.fanouts:
		require.Equal(t, 1000, f.Pushed)
	case <-time.After(4 * time.Minute): // on an idle machine it takes 0.3 s
		t.Fatal("the large one is not done")
	}
}

func TestMonitorFindsDrift(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 3, 1)
		// Every report is received, because a comparison that finds an entry may also remove it.
		reports := make(chan workers.Health)
		a.observeHealth = func(h workers.Health) {
			select {
			case reports <- h:
			case <-a.Ctx.Done():
			}
		}
		a.work(t, s.Redis)
		report := func(is func(workers.Health) bool) {
			t.Helper()
			for timeout := time.After(time.Minute); ; {
				select {
				case h := <-reports:
					if is(h) {
						return
					}
				case <-timeout:
					require.FailNow(t, "no such report")
				}
			}
		}
		require.NoError(t, a.Timelines.Feeds.Add(a.Ctx, timeline.Inbox(a.active[0]), 7))
		report(func(h workers.Health) bool { return h.Sampled > 0 && h.Extra > 0 })
		require.NoError(t, a.Timelines.Feeds.Remove(a.Ctx, timeline.Inbox(a.active[0]), 7))
		report(func(h workers.Health) bool { return h.Sampled > 0 && h.Extra == 0 })
	})
}

package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

// audience is one author with followers, some of whom are active, and workers
// that go through them five at a time.
type audience struct {
	ctx       context.Context
	s         *storage.Stores
	feed      *feed.Feed
	queue     *queue.Queue
	timelines *timeline.Store
	author    feed.Viewer
	active    []int64
	fanouts   chan workers.Fanout
	health    chan workers.Health
	canaries  chan time.Duration
}

func newAudience(t *testing.T, s *storage.Stores, followers, active int) *audience {
	a := &audience{ctx: t.Context(), s: s, fanouts: make(chan workers.Fanout, 16),
		health: make(chan workers.Health), canaries: make(chan time.Duration)}
	ids, err := feed.OpenIDs(a.ctx, s.DB)
	require.NoError(t, err)
	a.timelines, err = timeline.New(s.Redis, timeline.Config{})
	require.NoError(t, err)
	a.queue, err = queue.New(s.DB, s.Redis, queue.Config{SweepEvery: 50 * time.Millisecond})
	require.NoError(t, err)
	publisher := live.NewPublisher(s.Redis, s.Sharded)
	a.feed, err = feed.New(a.ctx, feed.Config{
		DB: s.DB, Dialect: s.Dialect, Timelines: a.timelines, Queue: a.queue, Publisher: publisher, IDs: ids,
	})
	require.NoError(t, err)
	users := make([]*ent.UserCreate, followers+1)
	for i := range users {
		id, err := ids.Next()
		require.NoError(t, err)
		users[i] = s.DB.User.Create().SetID(id).SetHandle(fmt.Sprintf("u%d", i)).SetPasswordHash("-")
		if i == 0 {
			users[i].SetFollowerCount(followers)
		}
	}
	rows, err := s.DB.User.CreateBulk(users...).Save(a.ctx)
	require.NoError(t, err)
	a.author = feed.Viewer{ID: rows[0].ID}
	follows := make([]*ent.FollowCreate, followers)
	for i := range follows {
		follows[i] = s.DB.Follow.Create().SetFollowerID(rows[i+1].ID).SetFolloweeID(rows[0].ID)
	}
	require.NoError(t, s.DB.Follow.CreateBulk(follows...).Exec(a.ctx))
	for _, u := range rows[1 : active+1] {
		a.active = append(a.active, u.ID)
		require.NoError(t, a.timelines.Touch(a.ctx, u.ID))
		require.NoError(t, a.feed.BuildInbox(a.ctx, u.ID))
	}
	w, err := workers.New(workers.Config{
		DB: s.DB, Feed: a.feed, Timelines: a.timelines, Queue: a.queue, Publisher: publisher, PageSize: 5, KeepEvery: time.Nanosecond,
		Observe:       func(f workers.Fanout) { a.fanouts <- f },
		WatchEvery:    50 * time.Millisecond,
		ObserveHealth: func(h workers.Health) { offer(a.health, h) },
		ObserveCanary: func(d time.Duration) { offer(a.canaries, d) },
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(a.ctx))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return a
}

// offer sends to whom it may concern.
func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// post posts, waits until the fan-out is done and returns its report.
func (a *audience) post(t *testing.T) (int64, workers.Fanout) {
	public := schema.Public
	p, err := a.feed.CreatePost(a.ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(a.ctx, 30*time.Second)
	defer cancel()
	require.NoError(t, a.queue.Drain(ctx))
	return p.ID, <-a.fanouts
}

func (a *audience) has(t *testing.T, post int64) {
	t.Helper()
	for _, user := range a.active {
		ids, covered, err := a.timelines.Page(a.ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, timeline.Ready, covered.State)
		require.Contains(t, ids, post)
	}
}

// Whether the fan-out goes through the followers or through the active users,
// it reaches exactly those who are both.
func TestEveryActiveFollowerIsReached(t *testing.T) {
	t.Parallel()
	for _, active := range []int{0, 3, 30, 42} {
		t.Run(fmt.Sprintf("%d of 42", active), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newAudience(t, s, 42, active)
				post, f := a.post(t)
				a.has(t, post)
				require.Equal(t, [3]int{42, active, 0}, [3]int{f.Followers, f.Pushed, f.Pulled})
			})
		})
	}
}

// faulty fails one fan-out pipeline of several, as a worker that dies does.
type faulty struct{ countdown atomic.Int64 }

func (f *faulty) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *faulty) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *faulty) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		push := slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
			return strings.EqualFold(c.Name(), "zadd") && strings.Contains(fmt.Sprint(c.Args()...), "tl:{i")
		})
		if push && f.countdown.Add(-1) == 0 {
			return errors.New("the worker dies here")
		}
		return next(ctx, cmds)
	}
}

// A fan-out that was interrupted goes on behind the pages that were done.
func TestInterruptedFanOutGoesOn(t *testing.T) {
	t.Parallel()
	for _, active := range []int{9, 42} {
		t.Run(fmt.Sprintf("%d of 42", active), func(t *testing.T) {
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				a := newAudience(t, s, 42, active)
				fault := &faulty{}
				fault.countdown.Store(2)
				s.Redis.AddHook(fault)
				post, f := a.post(t)
				a.has(t, post)
				require.GreaterOrEqual(t, f.Pushed, active)
				require.Less(t, f.Pushed, active+5*2, "not all over again")
			})
		})
	}
}

func TestMonitorFindsDriftAndSendsCanaries(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newAudience(t, s, 3, 1)
		require.Positive(t, <-a.canaries)
		require.NoError(t, a.timelines.Add(a.ctx, timeline.Inbox(a.active[0]), 7))
		require.Eventually(t, func() bool { h := <-a.health; return h.Sampled > 0 && h.Extra > 0 }, 30*time.Second, time.Millisecond)
		require.NoError(t, a.timelines.Remove(a.ctx, timeline.Inbox(a.active[0]), 7))
		require.Eventually(t, func() bool { h := <-a.health; return h.Sampled > 0 && h.Extra == 0 }, 30*time.Second, time.Millisecond)
	})
}

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

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// stoppedProcess is a process with workers that is stopped before one of its
// pipelines, its heart with it, and goes on when the test says so.
type stoppedProcess struct {
	here          func(cmds []redis.Cmder) bool // where it is stopped
	fails         bool                          // what follows the pipeline fails once
	stopped       atomic.Bool
	failed        atomic.Bool
	reached, goOn chan struct{}
	results       chan queue.Result
}

func (s *stoppedProcess) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *stoppedProcess) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.stopped.Load() {
			<-s.goOn
		}
		return next(ctx, cmd)
	}
}

func (s *stoppedProcess) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		switch {
		case s.stopped.Load():
			<-s.goOn
			if s.fails && s.failed.CompareAndSwap(false, true) {
				return errors.New("it fails here")
			}
		case s.here(cmds) && s.stopped.CompareAndSwap(false, true):
			close(s.reached)
			<-s.goOn
		}
		return next(ctx, cmds)
	}
}

// newStopped starts the workers of a process that is stopped there. Nobody else works
// yet.
func newStopped(t *testing.T, w *feedtest.World, fails bool, here func(cmds []redis.Cmder) bool) *stoppedProcess {
	opts := *w.Stores.Redis.(*redis.Client).Options()
	opts.PushNotificationProcessor = nil // the first client's own
	rdb := redis.NewClient(&opts)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := &stoppedProcess{here: here, fails: fails, reached: make(chan struct{}), goOn: make(chan struct{}), results: make(chan queue.Result, 100)}
	rdb.AddHook(s)
	stores := *w.Stores
	stores.Redis = rdb
	process(t, &stores, queue.Config{Observe: func(r queue.Result) { s.results <- r }})
	return s
}

// process starts the workers of a process, whose pages have five followers.
func process(t *testing.T, s *storage.Stores, q queue.Config) {
	q.SweepEvery, q.ClaimIdle = 50*time.Millisecond, 2*time.Second
	w := feedtest.New(t, s, feedtest.Options{LargeAudience: 20, Queue: q})
	cfg := w.WorkersConfig()
	cfg.PageSize, cfg.TrimEvery, cfg.WatchEvery = 5, time.Hour, time.Hour
	ws, err := workers.New(cfg)
	require.NoError(t, err)
	w.Run(ws.Run)
}

// wait waits until the process is stopped.
func (s *stoppedProcess) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(time.Minute):
		t.Fatal("it does not come by")
	}
}

// resume lets the process go on, and waits until its attempt has ended and has found
// its claim lost.
func (s *stoppedProcess) resume(t *testing.T) {
	t.Helper()
	close(s.goOn)
	for late := time.After(time.Minute); ; {
		select {
		case r := <-s.results:
			if r.Outcome == queue.Lost {
				return
			}
		case <-late:
			t.Fatal("its attempt does not end")
		}
	}
}

// intoInboxes reports whether the pipeline writes to inboxes of several users, with
// this command.
func intoInboxes(command string) func(cmds []redis.Cmder) bool {
	return func(cmds []redis.Cmder) bool {
		n := 0
		for _, c := range cmds {
			if strings.EqualFold(c.Name(), command) && slices.ContainsFunc(c.Args(), func(arg any) bool {
				return strings.HasPrefix(fmt.Sprint(arg), "tl:{i")
			}) {
				n++
			}
		}
		return n > 1 // the author's own goes alone
	}
}

// A process is stopped between reading and writing. Its claim is taken over, the job is
// done, and then the opposite is done too. No job is left when the process goes on and
// writes what it has read. Its own last look never comes, or too late.
func TestLostClaimLeavesInboxesRight(t *testing.T) {
	t.Parallel()
	set := func(a *audience, id int64, v schema.Visibility) {
		_, err := a.Feed.SetVisibility(a.Ctx, a.author, id, v)
		require.NoError(a, err)
	}
	for _, followers := range []int{5, 42} {
		for _, test := range []struct {
			name    string
			at      func(cmds []redis.Cmder) bool
			arrived bool // the post has arrived before
			begin   func(a *audience, id int64)
			undo    func(a *audience, id int64)
			stays   bool
		}{
			{
				name: "shown again", at: intoInboxes("evalsha"), arrived: true, stays: true,
				begin: func(a *audience, id int64) { set(a, id, schema.Private) },
				undo:  func(a *audience, id int64) { set(a, id, schema.Public) },
			},
			{
				name: "hidden again", at: intoInboxes("zadd"),
				undo: func(a *audience, id int64) { set(a, id, schema.Private) },
			},
			{
				name: "deleted", at: intoInboxes("zadd"),
				undo: func(a *audience, id int64) { require.NoError(a, a.Feed.DeletePost(a.Ctx, a.author, id)) },
			},
		} {
			t.Run(fmt.Sprintf("%s, of %d", test.name, followers), func(t *testing.T) {
				t.Parallel()
				storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
					a := newIdleAudience(t, s, followers, followers)
					public := schema.Public
					if test.arrived {
						stop := a.Work()
						p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
						require.NoError(t, err)
						a.Drain()
						stop()
						a.requireReached(t, p.ID)
						stopped := newStopped(t, a.World, false, test.at)
						test.begin(a, p.ID)
						loseClaim(a, stopped, p.ID, test.undo)
						a.requireReached(t, p.ID)
						return
					}
					stopped := newStopped(t, a.World, false, test.at)
					p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
					require.NoError(t, err)
					loseClaim(a, stopped, p.ID, test.undo)
					for _, user := range a.active {
						ids, covered, err := a.Timelines.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
						require.NoError(t, err)
						require.Equal(t, timeline.Ready, covered.State)
						require.NotContains(t, ids, p.ID)
					}
				})
			})
		}
	}
}

// loseClaim has another process do the stopped one's job, and what undoes it. Then the
// stopped process goes on.
func loseClaim(a *audience, stopped *stoppedProcess, id int64, undo func(a *audience, id int64)) {
	t := a.TB.(*testing.T)
	stopped.wait(t)
	process(t, a.Stores, queue.Config{})
	a.Drain()
	undo(a, id)
	a.Drain()
	stopped.resume(t)
	a.Drain()
}

// A process is stopped before it makes an inbox agree with a relation, which then
// becomes what it was. It goes on, writes what it has read, and fails before it looks
// again.
func TestLostClaimLeavesRelationsRight(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.New(t, s, feedtest.Options{})
		author, follower := w.User("author"), w.User("follower")
		for _, v := range []account.Viewer{author, follower} {
			_, err := w.Timelines.Visit(w.Ctx, v.ID)
			require.NoError(t, err)
			require.NoError(t, w.Home.BuildInbox(w.Ctx, v.ID))
		}
		stop := w.Work()
		w.Befriend(author, follower)
		post := w.Post(author, schema.Mutuals)
		w.Drain()
		stop()
		requireInbox := func(want ...int64) {
			t.Helper()
			ids, covered, err := w.Timelines.Page(w.Ctx, timeline.Inbox(follower.ID), timeline.Range{Limit: 10})
			require.NoError(t, err)
			require.Equal(t, timeline.Ready, covered.State)
			require.Equal(t, append([]int64{}, want...), ids)
		}
		requireInbox(post)

		inbox, n := timeline.Inbox(follower.ID).String()+":z", 0
		stopped := newStopped(t, w, true, func(cmds []redis.Cmder) bool {
			if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(inbox)) }) {
				n++
			}
			return n == 3 // after two that look
		})
		_, err := w.Feed.Unfollow(w.Ctx, author, follower.ID)
		require.NoError(t, err)
		stopped.wait(t)
		process(t, s, queue.Config{})
		w.Drain()
		requireInbox()
		w.Follow(author, follower)
		w.Drain()
		requireInbox(post)
		stopped.resume(t)
		w.Drain()
		requireInbox(post)
	})
}

// hung is a hook on a connection that once gives no answer to a write to inboxes.
type hung struct{ once atomic.Bool }

func (h *hung) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *hung) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *hung) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if intoInboxes("zadd")(cmds) && h.once.CompareAndSwap(false, true) {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmds)
	}
}

// A page waits for an answer that never comes. The process itself is well, and the
// fan-out is done in a later attempt.
func TestHungPageIsTriedAgain(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		a := newIdleAudience(t, s, 42, 42)
		h := &hung{}
		s.Redis.AddHook(h)
		process(t, s, queue.Config{StepLimit: 500 * time.Millisecond})
		p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello"})
		require.NoError(t, err)
		a.Drain()
		require.True(t, h.once.Load())
		a.requireReached(t, p.ID)
	})
}

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
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/queue"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
	"tideline/workers"
)

// stoppedProcess is a worker process that is suspended before one of its pipelines, including its
// heartbeat, and continues when the test says so.
type stoppedProcess struct {
	here          func(cmds []redis.Cmder) bool // where it is suspended
	fails         func(cmds []redis.Cmder) bool // which later pipeline fails, once; nil for none
	stopped       atomic.Bool
	failed        atomic.Bool
	reached, goOn chan struct{}
	results       chan queue.Result
	queue         *queue.Queue
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
			if s.fails != nil && s.fails(cmds) && s.failed.CompareAndSwap(false, true) {
				return errors.New("it fails here")
			}
		case s.here(cmds) && s.stopped.CompareAndSwap(false, true):
			close(s.reached)
			<-s.goOn
		}
		return next(ctx, cmds)
	}
}

// newStopped starts the workers of a process that is suspended where here says so. No other workers
// run yet.
func newStopped(t *testing.T, w *feedtest.World, here, fails func(cmds []redis.Cmder) bool) *stoppedProcess {
	s := &stoppedProcess{here: here, fails: fails, reached: make(chan struct{}), goOn: make(chan struct{}), results: make(chan queue.Result, 100)}
	s.queue = process(t, s.stores(t, w), queue.Config{Observe: func(r queue.Result) { s.results <- r }})
	return s
}

// stores returns the stores of the fixture, with a connection to Redis on which the process is
// suspended.
func (s *stoppedProcess) stores(t *testing.T, w *feedtest.World) *storage.Stores {
	opts := *w.Stores.Redis.(*redis.Client).Options()
	opts.PushNotificationProcessor = nil // the first client's own
	rdb := redis.NewClient(&opts)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	rdb.AddHook(s)
	stores := *w.Stores
	stores.Redis = rdb
	return &stores
}

// process starts the workers of a process whose pages have five followers.
func process(t *testing.T, s *storage.Stores, q queue.Config) *queue.Queue {
	q.SweepEvery, q.ClaimIdle = 50*time.Millisecond, 2*time.Second
	w := feedtest.New(t, s, feedtest.Options{LargeAudience: 20, Queue: q})
	cfg := w.WorkersConfig()
	cfg.PageSize, cfg.TrimEvery, cfg.WatchEvery = 5, time.Hour, time.Hour
	ws, err := workers.New(cfg)
	require.NoError(t, err)
	w.Run(ws.Run)
	return w.Queue
}

// wait waits until the process is suspended.
func (s *stoppedProcess) wait(t *testing.T) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(time.Minute):
		t.Fatal("it does not come by")
	}
}

// resume lets the process continue, and waits until its attempt has ended and has found that its
// claim is lost.
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

// intoInboxes reports whether the pipeline uses this command to write to inboxes of several users.
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
		return n > 1 // the author's own inbox has a pipeline of its own
	}
}

// A process is suspended between reading and writing. Its job is taken over and done, and then the
// opposite is done too. No job is left when the process continues and writes what it has read. Its
// own last look never comes, or too late.
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
						stopped := newStopped(t, a.World, test.at, nil)
						test.begin(a, p.ID)
						loseClaim(a, stopped, p.ID, test.undo)
						a.requireReached(t, p.ID)
						return
					}
					stopped := newStopped(t, a.World, test.at, nil)
					p, err := a.Feed.CreatePost(a.Ctx, a.author, feed.Draft{Text: "hello", Visibility: &public})
					require.NoError(t, err)
					loseClaim(a, stopped, p.ID, test.undo)
					for _, user := range a.active {
						ids, covered, err := a.Timelines.Feeds.Page(a.Ctx, timeline.Inbox(user), timeline.Range{Limit: 10})
						require.NoError(t, err)
						require.Equal(t, timeline.Ready, covered.State)
						require.NotContains(t, ids, p.ID)
					}
				})
			})
		}
	}
}

// loseClaim makes another process do the suspended job and a job that undoes it. Then the suspended
// process continues. On a slow machine more claims are lost, and a job is done by one attempt while
// another still writes. loseClaim returns when all attempts have ended.
func loseClaim(a *audience, stopped *stoppedProcess, id int64, undo func(a *audience, id int64)) {
	t := a.TB.(*testing.T)
	stopped.wait(t)
	other := process(t, a.Stores, queue.Config{})
	a.Drain()
	undo(a, id)
	a.Drain()
	stopped.resume(t)
	idle := func() bool { return stopped.queue.UnderWay()+other.UnderWay() == 0 }
	require.Eventually(t, func() bool {
		if !idle() {
			return false
		}
		a.Drain()
		return idle()
	}, time.Minute, 5*time.Millisecond)
}

// friends are two users with inboxes. The follower's inbox has a post of the author for friends.
type friends struct {
	*feedtest.World
	author, follower session.Viewer
	post             int64
}

func newFriends(t *testing.T, s *storage.Stores) *friends {
	f := &friends{World: feedtest.New(t, s, feedtest.Options{})}
	f.author, f.follower = f.User("author"), f.User("follower")
	for _, v := range []session.Viewer{f.author, f.follower} {
		_, err := f.Timelines.Visits.Visit(f.Ctx, v.ID)
		require.NoError(t, err)
		require.NoError(t, f.Home.Reader.BuildInbox(f.Ctx, v.ID))
	}
	stop := f.Work()
	f.Befriend(f.author, f.follower)
	f.post = f.Post(f.author, schema.Mutuals)
	f.Drain()
	stop()
	f.requireInbox(f.post)
	return f
}

// requireInbox requires that the follower's inbox has these posts.
func (f *friends) requireInbox(want ...int64) {
	f.Helper()
	ids, covered, err := f.Timelines.Feeds.Page(f.Ctx, timeline.Inbox(f.follower.ID), timeline.Range{Limit: 10})
	require.NoError(f, err)
	require.Equal(f, timeline.Ready, covered.State)
	require.Equal(f, append([]int64{}, want...), ids)
}

// atWrite suspends a process at its write to the follower's inbox, after two reads of it.
func (f *friends) atWrite() func(cmds []redis.Cmder) bool {
	n := 0
	return func(cmds []redis.Cmder) bool {
		if f.onInbox(cmds) {
			n++
		}
		return n == 3
	}
}

// onInbox reports whether a pipeline reads or writes the follower's inbox. Other pipelines of the
// process, for claims and jobs, occur at any time.
func (f *friends) onInbox(cmds []redis.Cmder) bool {
	inbox := timeline.Inbox(f.follower.ID).String() + ":z"
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(inbox)) })
}

// A process is suspended before it makes an inbox agree with a relation, which then becomes what it
// was before. The process continues, writes what it has read, and fails before it reads again.
func TestLostClaimLeavesRelationsRight(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		f := newFriends(t, s)
		stopped := newStopped(t, f.World, f.atWrite(), f.onInbox)
		_, err := f.Feed.Unfollow(f.Ctx, f.author, f.follower.ID)
		require.NoError(t, err)
		stopped.wait(t)
		process(t, s, queue.Config{})
		f.Drain()
		f.requireInbox()
		f.Follow(f.author, f.follower)
		f.Drain()
		f.requireInbox(f.post)
		stopped.resume(t)
		f.Drain()
		f.requireInbox(f.post)
	})
}

// The same happens to a caller that syncs the user's own inbox before it answers.
func TestStoppedCallerLeavesRelationsRight(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		f := newFriends(t, s)
		stopped := &stoppedProcess{here: f.atWrite(), fails: f.onInbox, reached: make(chan struct{}), goOn: make(chan struct{})}
		caller := feedtest.New(t, stopped.stores(t, f.World), feedtest.Options{})
		process(t, s, queue.Config{})
		_, err := f.Feed.Unfollow(f.Ctx, f.author, f.follower.ID)
		require.NoError(t, err)
		f.Drain()
		f.requireInbox()
		require.NoError(t, f.Timelines.Feeds.Add(f.Ctx, timeline.Inbox(f.follower.ID), f.post)) // as before the job
		done := make(chan struct{})
		go func() {
			defer close(done)
			caller.Home.Own.SyncInbox(f.Ctx, f.follower.ID, f.author.ID, 12345)
		}()
		stopped.wait(t)
		f.Follow(f.author, f.follower)
		f.Drain()
		f.requireInbox(f.post)
		close(stopped.goOn)
		<-done
		require.True(t, stopped.failed.Load())
		f.Drain()
		require.Equal(t, []int64{f.post}, f.Timeline(f.follower, 10)) // the inbox may be missing
	})
}

// hung is a hook on a connection that once does not answer a write to inboxes.
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

// A page gets no answer. The process itself is well, and a later attempt completes the fan-out.
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

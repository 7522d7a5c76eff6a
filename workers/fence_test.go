package workers_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
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

// stop suspends a worker once, before it sends a pipeline for an inbox.
type stop struct {
	inbox         string
	after         int // so many such pipelines pass first
	reached, goOn chan struct{}
}

// stopper suspends the workers of a test.
type stopper struct{ next atomic.Pointer[stop] }

// byWorker marks the contexts of workers.
type byWorker struct{}

func (s *stopper) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *stopper) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *stopper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		at := s.next.Load()
		here := func(c redis.Cmder) bool { return slices.Contains(c.Args(), any(at.inbox)) }
		if at != nil && ctx.Value(byWorker{}) != nil && slices.ContainsFunc(cmds, here) {
			if at.after--; at.after < 0 && s.next.CompareAndSwap(at, nil) {
				close(at.reached)
				<-at.goOn
			}
		}
		return next(ctx, cmds)
	}
}

// pairOfFriends is an author and a follower who follow each other, with workers that can be
// suspended before they write to the follower's inbox.
type pairOfFriends struct {
	*feedtest.World
	t                *testing.T
	stopper          *stopper
	built            func() // ends a build that the test has begun
	author, follower session.Viewer
}

func newPairOfFriends(t *testing.T, s *storage.Stores) *pairOfFriends {
	p := &pairOfFriends{World: feedtest.New(t, s, feedtest.Options{Queue: queue.Config{SweepEvery: 50 * time.Millisecond}}), t: t, stopper: &stopper{}}
	s.Redis.AddHook(p.stopper)
	cfg := p.WorkersConfig()
	cfg.TrimEvery, cfg.WatchEvery = time.Hour, time.Hour // only jobs touch the inbox
	ws, err := workers.New(cfg)
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.WithValue(context.WithoutCancel(p.Ctx), byWorker{}, true))
	done := make(chan struct{})
	go func() { defer close(done); _ = ws.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return p
}

// becomeFriends replaces both users with new ones that have empty inboxes.
func (p *pairOfFriends) becomeFriends(t *testing.T) {
	p.t, p.built = t, nil
	for _, v := range []*session.Viewer{&p.author, &p.follower} {
		var err error
		v.ID, err = p.IDs.Next()
		require.NoError(t, err)
		require.NoError(t, p.Stores.DB.User.Create().SetID(v.ID).SetHandle(fmt.Sprint("u", v.ID)).SetPasswordHash("-").Exec(p.Ctx))
	}
	p.do(p.Feed.Follow, p.author, p.follower)
	p.do(p.Feed.Follow, p.follower, p.author)
	p.Drain()
	_, err := p.Timelines.Visits.Visit(p.Ctx, p.follower.ID)
	require.NoError(t, err)
	require.NoError(t, p.Home.Reader.BuildInbox(p.Ctx, p.follower.ID))
}

// stopNext suspends the next worker that is about to write to the follower's inbox.
func (p *pairOfFriends) stopNext() *stop {
	at := &stop{inbox: timeline.Inbox(p.follower.ID).String() + ":z", reached: make(chan struct{}), goOn: make(chan struct{})}
	p.stopper.next.Store(at)
	return at
}

// wait waits until a worker is suspended there.
func (at *stop) wait(t *testing.T) {
	t.Helper()
	select {
	case <-at.reached:
	case <-time.After(30 * time.Second):
		t.Fatal("no worker came by")
	}
}

// do makes one of the two follow, block or mute the other, or undo that.
func (p *pairOfFriends) do(do func(context.Context, session.Viewer, int64) (*ent.User, error), one, other session.Viewer) {
	p.t.Helper()
	_, err := do(p.Ctx, one, other.ID)
	require.NoError(p.t, err)
}

// drainButOne waits until the suspended worker's job is the only one left.
func (p *pairOfFriends) drainButOne() {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		left, err := p.Stores.DB.Job.Query().Count(p.Ctx)
		return err == nil && left == 1
	}, 30*time.Second, time.Millisecond)
}

// wipe wipes Redis when the suspended worker's job is the only one left. Then both users read.
func (p *pairOfFriends) wipe() {
	p.t.Helper()
	p.drainButOne()
	require.NoError(p.t, p.Stores.Redis.FlushAll(p.Ctx).Err())
	for _, v := range []session.Viewer{p.follower, p.author} {
		_, err := p.Timelines.Visits.Visit(p.Ctx, v.ID)
		require.NoError(p.t, err)
		require.NoError(p.t, p.Home.Reader.BuildInbox(p.Ctx, v.ID))
	}
}

func (p *pairOfFriends) post(v schema.Visibility) int64 {
	p.t.Helper()
	made, err := p.Feed.CreatePost(p.Ctx, p.author, feed.Draft{Text: "hello", Visibility: &v})
	require.NoError(p.t, err)
	return made.ID
}

func (p *pairOfFriends) change(id int64, v schema.Visibility) {
	p.t.Helper()
	_, err := p.Feed.SetVisibility(p.Ctx, p.author, id, v)
	require.NoError(p.t, err)
}

func (p *pairOfFriends) delete(id int64) {
	p.t.Helper()
	require.NoError(p.t, p.Feed.DeletePost(p.Ctx, p.author, id))
}

// followerInbox returns the ids in the follower's inbox, even those that a read would not show.
func (p *pairOfFriends) followerInbox() []int64 {
	p.t.Helper()
	return p.inbox(p.follower)
}

func (p *pairOfFriends) inbox(v session.Viewer) []int64 {
	p.t.Helper()
	ids, covered, err := p.Timelines.Feeds.Page(p.Ctx, timeline.Inbox(v.ID), timeline.Range{Limit: 10})
	require.NoError(p.t, err)
	require.Equal(p.t, timeline.Ready, covered.State)
	return ids
}

// A worker is suspended after it has read a post and its followers, before it writes to an inbox.
// Meanwhile something changes in SQL, and all jobs that follow are done. After the worker has
// continued, the inbox agrees with SQL.
func TestStoppedWorkerDoesNotUndoWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, stopWorkers)
}

func stopWorkers(t *testing.T, s *storage.Stores) {
	p := newPairOfFriends(t, s)
	for _, test := range []struct {
		name string
		// before happens to a post that has arrived, and the worker that does the last job of it is
		// suspended. If before is nil, the worker that delivers the post is suspended.
		before []func(p *pairOfFriends, post int64)
		// meanwhile happens while the worker is suspended.
		meanwhile func(p *pairOfFriends, post int64)
		stays     bool // the post is in the inbox at the end
		author    bool // the author has an inbox too, and the post is in it at the end
	}{
		{name: "unfollow", meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Unfollow, p.follower, p.author) }},
		{name: "block by the author", meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Block, p.author, p.follower) }},
		{name: "block by the follower", meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Block, p.follower, p.author) }},
		{name: "mute", meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Mute, p.follower, p.author) }},
		{name: "friends no more", meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Unfollow, p.author, p.follower) }},
		{name: "narrowing", meanwhile: func(p *pairOfFriends, post int64) { p.change(post, schema.Private) }},
		{name: "delete", meanwhile: func(p *pairOfFriends, post int64) { p.delete(post) }},
		{name: "unfollow, and Redis is wiped", author: true, meanwhile: func(p *pairOfFriends, _ int64) {
			p.do(p.Feed.Unfollow, p.follower, p.author)
			p.wipe()
		}},
		{name: "mute, and Redis is wiped", author: true, meanwhile: func(p *pairOfFriends, _ int64) {
			p.do(p.Feed.Mute, p.follower, p.author)
			p.wipe()
		}},
		{
			name:      "widening",
			before:    []func(p *pairOfFriends, post int64){func(p *pairOfFriends, post int64) { p.change(post, schema.Private) }},
			meanwhile: func(p *pairOfFriends, post int64) { p.change(post, schema.Mutuals) },
			stays:     true,
		},
		{
			name: "unmute",
			before: []func(p *pairOfFriends, post int64){
				func(p *pairOfFriends, _ int64) { p.do(p.Feed.Mute, p.follower, p.author) },
				func(p *pairOfFriends, post int64) { p.change(post, schema.Followers) },
			},
			meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Unmute, p.follower, p.author) },
			stays:     true,
		},
		{
			name: "friends again",
			before: []func(p *pairOfFriends, post int64){
				func(p *pairOfFriends, post int64) { p.change(post, schema.Public) },
				func(p *pairOfFriends, _ int64) { p.do(p.Feed.Unfollow, p.author, p.follower) },
				func(p *pairOfFriends, post int64) { p.change(post, schema.Mutuals) },
			},
			meanwhile: func(p *pairOfFriends, _ int64) { p.do(p.Feed.Follow, p.author, p.follower) },
			stays:     true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.becomeFriends(t)
			var post int64
			var at *stop
			if len(test.before) == 0 {
				at = p.stopNext()
				post = p.post(schema.Mutuals)
			} else {
				post = p.post(schema.Mutuals)
				p.Drain()
				require.Equal(t, []int64{post}, p.followerInbox())
				for i, do := range test.before {
					p.Drain()
					if i == len(test.before)-1 {
						at = p.stopNext()
					}
					do(p, post)
				}
			}
			at.wait(t)
			test.meanwhile(p, post)
			p.drainButOne()
			close(at.goOn)
			p.Drain()
			want := []int64{}
			if test.stays {
				want = append(want, post)
			}
			require.Equal(t, want, p.followerInbox())
			if test.author {
				require.Equal(t, []int64{post}, p.inbox(p.author))
			}
		})
	}
}

// A post is hidden during its fan-out, from a follower whose relation to the author changed lately.
// The fan-out puts the post back after the job of the change has removed it, and the recheck of
// that job finds it there. The journal has recorded the removal, so a client need not read again.
func TestPostPutBackByASlowFanoutLeavesTheJournalWhole(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p := newPairOfFriends(t, s)
		p.becomeFriends(t) // which fences both
		before, err := p.Timelines.Visits.Visit(p.Ctx, p.follower.ID)
		require.NoError(t, err)

		push := p.stopNext()
		post := p.post(schema.Public)
		push.wait(t)
		recheckOfChange := p.stopNext()
		recheckOfChange.after = 1 // it removes the post from the inbox, and is suspended at its recheck
		p.change(post, schema.Private)
		recheckOfChange.wait(t)
		recheckOfPush := p.stopNext()
		close(push.goOn)
		recheckOfPush.wait(t)
		require.Equal(t, []int64{post}, p.followerInbox())
		close(recheckOfChange.goOn)
		p.drainButOne()
		require.Empty(t, p.followerInbox())
		noted, _, whole, err := p.Timelines.Journals.Changes(p.Ctx, p.follower.ID, before)
		require.NoError(t, err)
		require.True(t, whole)
		require.Equal(t, []timeline.Change{{Post: post, Removed: true}}, noted)

		close(recheckOfPush.goOn)
		p.Drain()
		require.Empty(t, p.followerInbox())
		_, _, whole, err = p.Timelines.Journals.Changes(p.Ctx, p.follower.ID, before)
		require.NoError(t, err)
		require.True(t, whole)
	})
}

// A worker that makes an inbox agree with a relation is suspended after it has read SQL, before it
// writes. All jobs that follow from the changes meanwhile are done, and the relation may be the
// same again.
func TestStoppedSyncDoesNotUndoWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p := newPairOfFriends(t, s)
		sql := func(err error) { require.NoError(t, err) }
		for _, test := range []struct {
			name string
			// before happens before the relation is read, and reaches no inbox. between happens
			// after that, and before posts are read.
			before, between func(post int64)
			meanwhile       func(post int64) // before it writes
			stays           bool             // the post is in the inbox at the end
		}{
			{
				name:      "unmute",
				between:   func(int64) { sql(s.DB.Mute.Create().SetMuterID(p.follower.ID).SetMutedID(p.author.ID).Exec(p.Ctx)) },
				meanwhile: func(int64) { p.do(p.Feed.Unmute, p.follower, p.author) },
				stays:     true,
			},
			{
				name:      "widening",
				before:    func(post int64) { sql(s.DB.Post.UpdateOneID(post).SetVisibility(schema.Private).Exec(p.Ctx)) },
				meanwhile: func(post int64) { p.change(post, schema.Public) },
				stays:     true,
			},
			{
				name:      "narrowing",
				before:    func(post int64) { sql(p.Timelines.Feeds.Remove(p.Ctx, timeline.Inbox(p.follower.ID), post)) },
				meanwhile: func(post int64) { p.change(post, schema.Private) },
			},
			{
				name:      "delete",
				before:    func(post int64) { sql(p.Timelines.Feeds.Remove(p.Ctx, timeline.Inbox(p.follower.ID), post)) },
				meanwhile: func(post int64) { p.delete(post) },
			},
			{
				name:   "delete, and a build under way",
				before: func(post int64) { sql(p.Timelines.Feeds.Remove(p.Ctx, timeline.Inbox(p.follower.ID), post)) },
				meanwhile: func(post int64) {
					p.delete(post)
					inbox := timeline.Inbox(p.follower.ID)
					sql(p.Timelines.Feeds.Drop(p.Ctx, inbox))
					b, begun, err := p.Timelines.Feeds.Begin(p.Ctx, inbox)
					require.True(t, err == nil && begun)
					p.built = func() {
						for done := false; !done; {
							done, err = p.Timelines.Feeds.Finish(p.Ctx, &b, nil, 0)
							require.NoError(t, err)
						}
					}
				},
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				p.becomeFriends(t)
				post := p.post(schema.Public)
				p.Drain()
				require.Equal(t, []int64{post}, p.followerInbox())
				if test.before != nil {
					test.before(post)
				}
				first := p.stopNext()
				agreed := make(chan error, 1)
				go func() {
					_, err := p.Home.Sync.Inbox(context.WithValue(p.Ctx, byWorker{}, true), p.follower.ID, p.author.ID)
					agreed <- err
				}()
				first.wait(t)
				if test.between != nil {
					test.between(post)
				}
				second := p.stopNext()
				second.after = 1 // it reads the inbox, and is suspended at the write
				close(first.goOn)
				second.wait(t)
				test.meanwhile(post)
				p.Drain()
				close(second.goOn)
				require.NoError(t, <-agreed)
				if p.built != nil {
					p.built()
				}
				want := []int64{}
				if test.stays {
					want = append(want, post)
				}
				require.Equal(t, want, p.followerInbox())
			})
		}
	})
}

package home_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// stop is a hook that stops a marked context before it writes an id.
type stop struct {
	id              string
	once            sync.Once
	stopped, resume chan struct{}
}

type stoppable struct{}

func (s *stop) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *stop) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (s *stop) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		writes := func(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(s.id)) }
		if s.id != "" && ctx.Value(stoppable{}) == s && slices.ContainsFunc(cmds, writes) {
			s.once.Do(func() {
				close(s.stopped)
				<-s.resume
			})
		}
		// Without the deadline, because a read that gives Redis up puts no post into a feed, and
		// the machine may be slow.
		return next(context.WithoutCancel(ctx), cmds)
	}
}

// stopBefore runs work, which stops before it writes the id. goOn lets it continue and waits for
// its end.
func (w *world) stopBefore(id int64, work func(context.Context) error) (goOn func()) {
	w.Helper()
	s := &stop{id: strconv.FormatInt(id, 10), stopped: make(chan struct{}), resume: make(chan struct{})}
	w.Stores.Redis.AddHook(s)
	done := make(chan error, 1)
	go func() { done <- work(context.WithValue(w.Ctx, stoppable{}, s)) }()
	select {
	case <-s.stopped:
	case err := <-done:
		require.Fail(w, "it did not stop", "%v", err)
	}
	return func() {
		w.Helper()
		close(s.resume)
		require.NoError(w, <-done)
	}
}

// frozen returns a fixture without workers, in which no builder counts as dead.
func frozen(t testing.TB, s *storage.Stores, policy home.Policy) *world {
	now := time.Now()
	s.Redis.AddHook(&stop{})
	return newWorld(t, s, feedtest.Options{Policy: policy, Timelines: timeline.Config{Now: func() time.Time { return now }}})
}

func (w *world) follows(follower, followee session.Viewer) {
	w.Helper()
	require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(follower.ID).SetFolloweeID(followee.ID).Exec(w.Ctx))
}

func (w *world) inbox(v session.Viewer) ([]int64, timeline.State) {
	w.Helper()
	ids, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(v.ID), timeline.Range{Limit: 100})
	require.NoError(w, err)
	return ids, covered.State
}

// A post is committed after the last query of a builder, and its fan-out is delayed. A reader who
// saw the post from SQL finds it in the inbox that becomes Ready.
func TestWhatWasShownFromSQLStays(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := frozen(t, s, home.Policy{})
		for name, reads := range map[string]func(session.Viewer) []int64{
			"page": func(v session.Viewer) []int64 { return w.Timeline(v, 10) },
			"ranked": func(v session.Viewer) []int64 {
				c, err := w.Home.Timeline(w.Ctx, v, paging.Page{}, home.Ranked)
				require.NoError(t, err)
				return feedtest.NewestFirst(feedtest.PostIDs(c)...)
			},
			"stream": func(v session.Viewer) (ids []int64) {
				posts, _, err := w.Home.Clients.Since(w.Ctx, v, 1, true)
				require.NoError(t, err)
				for _, p := range posts {
					ids = append(ids, p.ID)
				}
				return feedtest.NewestFirst(ids...)
			},
		} {
			ann, bob := w.User("a"+name), w.User("b"+name)
			w.follows(ann, bob)
			first := w.Post(bob, schema.Public)
			_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
			require.NoError(t, err)
			goOn := w.stopBefore(first, func(ctx context.Context) error { return w.Home.Reader.BuildInbox(ctx, ann.ID) })
			second := w.Post(bob, schema.Public)
			want := []int64{second, first}
			require.Equal(t, want, reads(ann), name)
			goOn()
			held, state := w.inbox(ann)
			require.Equal(t, timeline.Ready, state)
			require.Equal(t, want, held)
			require.Equal(t, want, w.Timeline(ann, 10), name)
		}
	})
}

// The post that a reader is about to put into the inbox is hidden and removed from all inboxes.
// The reader neither puts it there nor shows it.
func TestReaderPutsNothingBackThatWasRemoved(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := frozen(t, s, home.Policy{})
		w.Work()
		for name, hide := range map[string]func(bob, ann session.Viewer, post int64) error{
			"narrowed": func(bob, _ session.Viewer, post int64) error {
				_, err := w.Feed.SetVisibility(w.Ctx, bob, post, schema.Private)
				return err
			},
			"deleted": func(bob, _ session.Viewer, post int64) error { return w.Feed.DeletePost(w.Ctx, bob, post) },
			"unfollowed": func(bob, ann session.Viewer, _ int64) error {
				_, err := w.Feed.Unfollow(w.Ctx, ann, bob.ID)
				return err
			},
		} {
			ann, bob := w.User("a"+name), w.User("b"+name)
			w.follows(ann, bob)
			post := w.Post(bob, schema.Public)
			w.Drain()
			_, err := w.Timelines.Visits.Visit(w.Ctx, ann.ID)
			require.NoError(t, err)
			b, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Inbox(ann.ID))
			require.True(t, err == nil && begun)
			var got []int64
			goOn := w.stopBefore(post, func(ctx context.Context) error {
				c, err := w.Home.Timeline(ctx, ann, paging.Page{}, home.Latest)
				got = feedtest.PostIDs(c)
				return err
			})
			require.NoError(t, hide(bob, ann, post))
			w.Drain() // it has left all inboxes
			goOn()
			require.Empty(t, got, name)
			for range 2 { // something was removed
				_, err = w.Timelines.Feeds.Finish(w.Ctx, &b, nil, 0)
				require.NoError(t, err)
			}
			held, state := w.inbox(ann)
			require.Equal(t, timeline.Ready, state)
			require.Empty(t, held, name)
		}
	})
}

// A post that was shown from SQL also stays in outboxes, both if readers merge them and on a
// profile.
func TestWhatWasShownFromSQLStaysInOutboxes(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := frozen(t, s, home.Policy{PullAbove: home.AlwaysPull})
		for name, reads := range map[string]func(ann, bob session.Viewer) []int64{
			"page": func(ann, _ session.Viewer) []int64 { return w.Timeline(ann, 10) },
			"profile": func(ann, bob session.Viewer) (ids []int64) {
				posts, _, err := w.Home.Reader.PostsBy(w.Ctx, ann.ID, bob.ID, timeline.Range{Limit: 10})
				require.NoError(t, err)
				for _, p := range posts {
					ids = append(ids, p.ID)
				}
				return ids
			},
		} {
			ann, bob := w.User("a"+name), w.User("b"+name)
			w.follows(ann, bob)
			begin := func(v session.Viewer) timeline.Build {
				b, begun, err := w.Timelines.Feeds.Begin(w.Ctx, timeline.Outbox(v.ID))
				require.True(t, err == nil && begun)
				return b
			}
			finish := func(b timeline.Build) {
				done, err := w.Timelines.Feeds.Finish(w.Ctx, &b, nil, 0)
				require.True(t, err == nil && done)
			}
			finish(begin(ann))
			b := begin(bob)
			post := w.History(bob, 1) // as from a process that stopped after its commit
			require.Equal(t, post, reads(ann, bob), name)
			finish(b)
			require.Equal(t, post, reads(ann, bob), name)
		}
	})
}

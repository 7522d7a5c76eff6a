package home_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

// After a failover all readers ask for builds at once. A feed waits for a builder once, however
// many requests there are, and no feed is built that waited so long that its user may have asked
// again.
func TestWaveOfBuilds(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var later atomic.Int64
		w := &world{feedtest.New(t, s, feedtest.Options{
			Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
		})}
		ann, bob, star := w.User("ann"), w.User("bob"), w.User("star")
		w.History(star, 3)
		state := func(v session.Viewer) timeline.State {
			_, covered, err := w.Timelines.Feeds.Page(w.Ctx, timeline.Inbox(v.ID), timeline.Range{})
			require.NoError(t, err)
			return covered.State
		}
		w.Timeline(ann, 1)
		later.Store(int64(time.Minute))
		for range 1100 { // more than may wait
			_, _, err := w.Home.Reader.PostsBy(w.Ctx, ann.ID, star.ID, timeline.Range{Limit: 1})
			require.NoError(t, err)
		}
		w.Timeline(bob, 1)
		w.Run(w.Home.Run)
		require.Eventually(t, func() bool { return state(bob) == timeline.Ready }, time.Minute, time.Millisecond,
			"there was room for one more")
		require.Equal(t, timeline.Building, state(ann), "she waited for a minute")
		w.AwaitInbox(ann)
	})
}

// The next read replaces a dead builder, also if reads use outboxes only.
func TestDeadBuilderIsReplaced(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]home.Policy{"an inbox": {}, "outboxes alone": {PullAbove: home.AlwaysPull}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
				var ahead atomic.Int64
				w := newWorld(t, s, feedtest.Options{
					Policy: policy, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
				})
				reader := w.User("reader")
				inbox := timeline.Inbox(reader.ID)
				_, err := w.Timelines.Visits.Visit(w.Ctx, reader.ID)
				require.NoError(t, err)
				_, started, err := w.Timelines.Feeds.Begin(w.Ctx, inbox)
				require.NoError(t, err)
				require.True(t, started)
				ahead.Store(int64(10 * time.Second))
				w.Timeline(reader, 1)
				require.Eventually(t, func() bool {
					_, covered, err := w.Timelines.Feeds.Page(w.Ctx, inbox, timeline.Range{})
					return err == nil && covered.State == timeline.Ready
				}, time.Minute, time.Millisecond)
			})
		})
	}
}

// A stream that begins waits for the build of its inbox. The client state leaves out posts with
// words that the viewer mutes. If no turn is free, the state comes from SQL, and the inbox is
// built later.
func TestAStreamThatBeginsWaitsForItsInbox(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(fw *feedtest.World) {
		w := &world{fw}
		ann, bob, star := w.User("ann"), w.User("bob"), w.User("star")
		w.follows(ann, star)
		w.follows(bob, star)
		posts := w.History(star, 3)
		require.NoError(t, w.Stores.DB.Post.UpdateOneID(posts[1]).SetText("no cat").Exec(w.Ctx))
		_, err := w.Stores.DB.MutedWord.Create().SetUserID(ann.ID).SetWord("cat").SetHead("cat").Save(w.Ctx)
		require.NoError(t, err)

		state, err := w.Home.Clients.Now(w.Ctx, ann)
		require.NoError(t, err)
		held, ready := w.inbox(ann)
		require.Equal(t, timeline.Ready, ready)
		require.ElementsMatch(t, posts, held)
		require.True(t, state.Has(posts[0]) && state.Has(posts[2]))
		require.False(t, state.Has(posts[1]), "a client can read what a cursor says")

		giveBack := w.Home.Reader.TakeTurns()
		state, err = w.Home.Clients.Now(w.Ctx, bob)
		require.NoError(t, err)
		require.True(t, state.Has(posts[0]) && state.Has(posts[1]) && state.Has(posts[2]))
		_, building := w.inbox(bob)
		require.Equal(t, timeline.Building, building)
		giveBack()
		require.Eventually(t, func() bool { held, ready := w.inbox(bob); return ready == timeline.Ready && len(held) == 3 }, time.Minute, time.Millisecond)
	})
}

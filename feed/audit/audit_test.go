package audit_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/audit"
	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

func TestVerifyFindsAndRebuildMends(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		w.Drain()
		w.AwaitInbox(ann)
		var posts []int64
		for range 5 {
			posts = append(posts, w.Post(bob, schema.Public))
		}
		w.Drain()
		verify := func() audit.Difference {
			w.Helper()
			d, err := w.Audit.Verify(w.Ctx, ann.ID, -1)
			require.NoError(w, err)
			return d
		}
		require.Equal(w, audit.Difference{Checked: 5}, verify())
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, timeline.Inbox(ann.ID), posts[2]))
		require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w, []int64{posts[2]}, verify().Missing)
		require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w, []int64{77}, verify().Extra)
		_, err := w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.Equal(w, audit.Difference{Checked: 5}, verify())
		in, err := w.Audit.Inspect(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.True(w, in.Active)
		require.Equal(w, 5, in.Entries)
		require.Equal(w, posts[4], in.Newest)
	})
}

func TestVerifyOutboxFindsAndRebuildMends(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		bob := w.User("bob")
		posts := w.History(bob, 3)
		verify := func() audit.Difference {
			w.Helper()
			d, err := w.Audit.VerifyOutbox(w.Ctx, bob.ID, -time.Second)
			require.NoError(w, err)
			return d
		}
		require.Zero(w, verify(), "SQL has what Redis does not know")
		known, err := w.Timelines.Latest.IDs(w.Ctx, []int64{bob.ID})
		require.NoError(w, err)
		require.NoError(w, w.Timelines.Latest.Store(w.Ctx, known, map[int64]int64{bob.ID: posts[1]}))
		require.Equal(w, audit.Difference{Checked: 1, Missing: posts[2:]}, verify(), "nobody asks the outbox for the latest post")
		require.NoError(w, w.Audit.RebuildOutbox(w.Ctx, bob.ID))
		require.Equal(w, audit.Difference{Checked: 3}, verify())
		known, err = w.Timelines.Latest.IDs(w.Ctx, []int64{bob.ID})
		require.NoError(w, err)
		require.Equal(w, posts[2:], known.IDs)
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, timeline.Outbox(bob.ID), posts[1]))
		require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Outbox(bob.ID), 77))
		require.Equal(w, audit.Difference{Checked: 3, Missing: posts[1:2], Extra: []int64{77}}, verify())
		require.NoError(w, w.Audit.RebuildOutbox(w.Ctx, bob.ID))
		require.Equal(w, audit.Difference{Checked: 3}, verify())
	})
}

// If the newest posts of merged authors fill the compared range, older entries of the inbox are not
// extra, unless nobody may be shown them.
func TestVerifyBesideManyMergedPosts(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann, bob, star := w.User("ann"), w.User("bob"), w.User("star")
		require.NoError(w, w.Stores.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.Ctx))
		w.Follow(ann, bob)
		w.Follow(ann, star)
		w.History(bob, 20)
		w.AwaitInbox(ann)
		w.History(star, 2*feedtest.InboxCap+10)
		require.NoError(w, w.Timelines.Feeds.Drop(w.Ctx, timeline.Outbox(star.ID))) // it may have been built before
		verify := func() audit.Difference {
			w.Helper()
			d, err := w.Audit.Verify(w.Ctx, ann.ID, -1)
			require.NoError(w, err)
			return d
		}
		require.Equal(w, audit.Difference{Checked: 2 * feedtest.InboxCap}, verify())
		require.NoError(w, w.Timelines.Feeds.Add(w.Ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w, audit.Difference{Checked: 2 * feedtest.InboxCap, Extra: []int64{77}}, verify())
		lost := w.History(bob, 1) // no worker pushes them
		require.Eventually(w, func() bool { return slices.Equal(lost, verify().Missing) }, 30*time.Second, 5*time.Millisecond,
			"as soon as the outbox is there, so that SQL does not answer")
	})
}

// The reads of an audit do not count as reads of the user.
func TestVerifyIsNotCounted(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var reads atomic.Int64
		w := feedtest.Idle(t, s, feedtest.Options{Observe: func(bool) { reads.Add(1) }})
		ann := w.User("ann")
		w.Post(ann, schema.Public)
		w.AwaitInbox(ann)
		before := reads.Load()
		d, err := w.Audit.Verify(w.Ctx, ann.ID, -1)
		require.NoError(t, err)
		require.Equal(t, audit.Difference{Checked: 1}, d)
		require.Equal(t, before, reads.Load())
	})
}

// If nothing is pushed, a post that the inbox lacks is not missing.
func TestAuditOfAlwaysPull(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		w := feedtest.Idle(t, s, feedtest.Options{Policy: home.Policy{PullAbove: home.AlwaysPull, MergedListFor: time.Nanosecond}})
		w.Work()
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		w.AwaitInbox(ann)
		author, err := s.DB.User.Get(w.Ctx, bob.ID)
		require.NoError(w, err)
		require.NoError(w, w.Home.FanOutModes.CrossThreshold(w.Ctx, author))
		id := w.Post(bob, schema.Public)
		w.Drain()
		require.Equal(w, []int64{id}, w.Timeline(ann, 5))
		why, err := w.Audit.Explain(w.Ctx, ann.ID, id)
		require.NoError(w, err)
		require.Contains(w, why, "reads merge the author's outbox")
		require.Contains(w, why, "It is shown")
		require.NoError(w, w.Audit.RebuildOutbox(w.Ctx, bob.ID))
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, timeline.Outbox(bob.ID), id))
		why, err = w.Audit.Explain(w.Ctx, ann.ID, id)
		require.NoError(w, err)
		require.Contains(w, why, "ought to be shown")
		in, err := w.Audit.Inspect(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.True(w, in.AllMerged)
		require.Empty(w, in.Merged)
	})
}

func TestRebuildOfAUserWhoIsAway(t *testing.T) {
	t.Parallel()
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.User("ann")
		built, err := w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.False(w, built)
		w.AwaitInbox(ann)
		built, err = w.Audit.Rebuild(w.Ctx, ann.ID)
		require.NoError(w, err)
		require.True(w, built)
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		says := func(post int64, words string) {
			w.Helper()
			why, err := w.Audit.Explain(w.Ctx, ann.ID, post)
			require.NoError(w, err)
			require.Contains(w, why, words)
		}
		public, mutual, private := w.Post(bob, schema.Public), w.Post(bob, schema.Mutuals), w.Post(bob, schema.Private)
		says(public, "does not follow")
		says(1, "no such post")
		w.Follow(ann, bob)
		says(public, "no inbox")
		w.AwaitInbox(ann)
		w.Drain()
		says(public, "in the viewer's inbox")
		says(mutual, "for friends")
		says(private, "the author alone")
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, timeline.Inbox(ann.ID), public))
		says(public, "ought to be shown")
		_, err := w.Feed.Mute(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		says(public, "mutes")
		_, err = w.Feed.Block(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		says(public, "the author blocks")
		_, err = w.Feed.Block(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		says(public, "the viewer blocks")
	})
}

package feed_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestVerifyFindsAndRebuildMends(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		w.settle()
		w.ready(ann)
		var posts []int64
		for range 5 {
			posts = append(posts, w.post(bob, schema.Public))
		}
		w.settle()
		verify := func() feed.Difference {
			w.t.Helper()
			d, err := w.feed.Verify(w.ctx, ann.ID, -1)
			require.NoError(w.t, err)
			return d
		}
		require.Equal(w.t, feed.Difference{Checked: 5}, verify())
		require.NoError(w.t, w.tl.Remove(w.ctx, timeline.Inbox(ann.ID), posts[2]))
		require.NoError(w.t, w.tl.Add(w.ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w.t, []int64{posts[2]}, verify().Missing)
		require.NoError(w.t, w.tl.Add(w.ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w.t, []int64{77}, verify().Extra)
		_, err := w.feed.Rebuild(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.Equal(w.t, feed.Difference{Checked: 5}, verify())
		in, err := w.feed.Inspect(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.True(w.t, in.Active)
		require.Equal(w.t, 5, in.Entries)
		require.Equal(w.t, posts[4], in.Newest)
	})
}

// Where the newest posts of the authors who are merged fill what is compared, the
// inbox's older entries are no drift, but for those that nobody may be shown.
func TestVerifyBesideManyMergedPosts(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob, star := w.user("ann"), w.user("bob"), w.user("star")
		require.NoError(w.t, w.s.DB.User.UpdateOneID(star.ID).SetFanOutMode(user.FanOutModePULL).Exec(w.ctx))
		w.follow(ann, bob)
		w.follow(ann, star)
		w.history(bob, 20)
		w.ready(ann)
		w.history(star, 2*inboxCap+10)
		require.NoError(w.t, w.tl.Drop(w.ctx, timeline.Outbox(star.ID))) // built before, maybe
		verify := func() feed.Difference {
			w.t.Helper()
			d, err := w.feed.Verify(w.ctx, ann.ID, -1)
			require.NoError(w.t, err)
			return d
		}
		require.Equal(w.t, feed.Difference{Checked: 2 * inboxCap}, verify())
		require.NoError(w.t, w.tl.Add(w.ctx, timeline.Inbox(ann.ID), 77))
		require.Equal(w.t, feed.Difference{Checked: 2 * inboxCap, Extra: []int64{77}}, verify())
		lost := w.history(bob, 1) // with no worker to push it
		require.Eventually(w.t, func() bool { return slices.Equal(lost, verify().Missing) }, 30*time.Second, 5*time.Millisecond,
			"as soon as the outbox is there, so that SQL does not answer")
	})
}

// What an audit reads is no read of a user's.
func TestVerifyIsNotCounted(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		var reads reads
		w := newWorld(t, s, func(c *feed.Config) { c.Observe = reads.observe })
		ann := w.user("ann")
		w.post(ann, schema.Public)
		w.ready(ann)
		before := reads.hits.Load() + reads.misses.Load()
		d, err := w.feed.Verify(w.ctx, ann.ID, -1)
		require.NoError(t, err)
		require.Equal(t, feed.Difference{Checked: 1}, d)
		require.Equal(t, before, reads.hits.Load()+reads.misses.Load())
	})
}

// Where nobody is pushed, what the inbox lacks is no fault.
func TestAuditOfAlwaysPull(t *testing.T) {
	t.Parallel()
	eachAbove(t, feed.AlwaysPull, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		w.ready(ann)
		w.rebalance()
		w.rebalance()
		id := w.post(bob, schema.Public)
		w.settle()
		require.Equal(w.t, []int64{id}, w.timeline(ann, 5))
		why, err := w.feed.Explain(w.ctx, ann.ID, id)
		require.NoError(w.t, err)
		require.Contains(w.t, why, "reads merge the outboxes of everybody")
		in, err := w.feed.Inspect(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.True(w.t, in.AllMerged)
		require.Empty(w.t, in.Merged)
	})
}

func TestRebuildOfAUserWhoIsAway(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann := w.user("ann")
		built, err := w.feed.Rebuild(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.False(w.t, built)
		w.ready(ann)
		built, err = w.feed.Rebuild(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.True(w.t, built)
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		says := func(post int64, words string) {
			w.t.Helper()
			why, err := w.feed.Explain(w.ctx, ann.ID, post)
			require.NoError(w.t, err)
			require.Contains(w.t, why, words)
		}
		public, mutual, private := w.post(bob, schema.Public), w.post(bob, schema.Mutuals), w.post(bob, schema.Private)
		says(public, "does not follow")
		says(1, "no such post")
		w.follow(ann, bob)
		says(public, "no inbox")
		w.ready(ann)
		w.settle()
		says(public, "in the viewer's inbox")
		says(mutual, "for friends")
		says(private, "the author alone")
		require.NoError(w.t, w.tl.Remove(w.ctx, timeline.Inbox(ann.ID), public))
		says(public, "ought to be shown")
		_, err := w.feed.Mute(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		says(public, "mutes")
		_, err = w.feed.Block(w.ctx, bob, ann.ID)
		require.NoError(w.t, err)
		says(public, "the author blocks")
		_, err = w.feed.Block(w.ctx, ann, bob.ID)
		require.NoError(w.t, err)
		says(public, "the viewer blocks")
	})
}

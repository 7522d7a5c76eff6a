package feed_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
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
		require.NoError(w.t, w.feed.Rebuild(w.ctx, ann.ID))
		require.Equal(w.t, feed.Difference{Checked: 5}, verify())
		in, err := w.feed.Inspect(w.ctx, ann.ID)
		require.NoError(w.t, err)
		require.True(w.t, in.Active)
		require.Equal(w.t, 5, in.Entries)
		require.Equal(w.t, posts[4], in.Newest)
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

package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/stream"
)

// A reply and a repost leave a timeline with their root and original, and come back with them: for
// clients that are connected, whether or not they ask for edits, and for those that come back.
func TestDependentPostsLeaveLiveTimelines(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair() // ann follows bob
		cat := w.User("cat")
		w.Follow(ann, cat)
		w.Follow(bob, cat)
		w.Drain()
		root := w.Post(cat, schema.Public)
		w.Drain()
		asks, old, away := w.listenFor(ann, stream.Options{Updates: true}), w.listen(ann, nil), w.listen(ann, nil)
		p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "reply", ReplyTo: root})
		require.NoError(w, err)
		w.Drain()
		repost, err := w.Feed.Repost(w.Ctx, bob, root, nil)
		require.NoError(w, err)
		w.Drain()
		for _, l := range []listener{asks, old} {
			require.Equal(w, p.ID, l.added())
			require.Equal(w, repost.ID, l.added())
		}
		require.Equal(w, p.ID, away.added())
		after := away.position()
		away.close()

		_, err = w.Feed.SetVisibility(w.Ctx, cat, root, schema.Private)
		require.NoError(w, err)
		w.Drain()
		back := w.listenFor(ann, stream.Options{After: after})
		for _, l := range []listener{asks, old, back} {
			require.ElementsMatch(w, []int64{root, p.ID, repost.ID}, []int64{l.removed(), l.removed(), l.removed()})
		}
		_, err = w.Feed.SetVisibility(w.Ctx, cat, root, schema.Public)
		require.NoError(w, err)
		w.Drain()
		for _, l := range []listener{asks, old, back} {
			require.ElementsMatch(w, []int64{root, p.ID, repost.ID}, []int64{l.added(), l.added(), l.added()})
		}
		require.NoError(w, w.Feed.DeletePost(w.Ctx, cat, root))
		w.Drain()
		for _, l := range []listener{asks, old, back} {
			require.ElementsMatch(w, []int64{root, p.ID, repost.ID}, []int64{l.removed(), l.removed(), l.removed()})
		}
	})
}

// A root is shown for a moment and hidden again, before any client is told of either. A client that read a
// page in that moment has the reply, which its client state does not name, and is told that it is gone.
func TestReplyThatWasShownForAMoment(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair() // ann follows bob
		cat := w.User("cat")
		w.Follow(bob, cat)
		require.NoError(w, w.Stores.DB.User.UpdateOneID(ann.ID).SetHomeReplies(schema.AllReplies).Exec(w.Ctx))
		root := w.Post(cat, schema.Public)
		p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "reply", ReplyTo: root})
		require.NoError(w, err)
		seen := func(to schema.Visibility) {
			_, err := w.Feed.SetVisibility(w.Ctx, cat, root, to)
			require.NoError(w, err)
		}
		w.Drain()
		seen(schema.Private)
		w.Drain()
		stays, leaves := w.listen(ann, nil), w.listen(ann, nil)
		for _, l := range []listener{stays, leaves} {
			require.Equal(w, p.ID, l.removed()) // it may have been on a page that was read before
		}
		first := w.Post(bob, schema.Public)
		w.Drain()
		require.Equal(w, first, stays.added())
		after := leaves.position()
		leaves.close()

		seen(schema.Public)
		require.Contains(w, w.Timeline(ann, 10), p.ID)
		seen(schema.Private)
		w.Drain()
		require.Equal(w, p.ID, stays.removed())
		require.Equal(w, p.ID, w.listen(ann, after).removed())
	})
}

// An old reply that comes back with its root is told to clients that do not ask for edits, too.
func TestOldReplyComesBack(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair() // ann follows bob
		cat := w.User("cat")
		root, reply := w.PostAged(cat, 2*time.Hour), w.PostAged(bob, time.Hour)+1
		require.NoError(w, w.Stores.DB.Post.Create().SetID(reply).SetAuthorID(bob.ID).SetText("reply").SetVisibility(schema.Public).
			SetParentID(root).SetRootID(root).SetParentAuthorID(cat.ID).Exec(w.Ctx))
		w.Follow(ann, cat) // otherwise ann does not want replies to cat
		w.Drain()
		stays, leaves := w.listen(ann, nil), w.listen(ann, nil)
		_, err := w.Feed.SetVisibility(w.Ctx, cat, root, schema.Private)
		require.NoError(w, err)
		w.Drain()
		for _, l := range []listener{stays, leaves} {
			require.ElementsMatch(w, []int64{root, reply}, []int64{l.removed(), l.removed()})
		}
		first := w.Post(bob, schema.Public)
		w.Drain()
		require.Equal(w, first, stays.added())
		after := leaves.position()
		leaves.close()
		_, err = w.Feed.SetVisibility(w.Ctx, cat, root, schema.Public)
		require.NoError(w, err)
		w.Drain()
		for _, l := range []listener{stays, w.listen(ann, after)} {
			got := map[int64]bool{}
			for len(got) < 2 {
				if ev, ok := l.next().(*stream.PostAdded); ok { // a removal may come again
					got[ev.Edge.Node.ID] = true
				}
			}
			require.Equal(w, map[int64]bool{root: true, reply: true}, got)
		}
	})
}

// A client that asks for edits is told when the card of a quote changes: when the quoted post is edited,
// hidden or deleted.
func TestQuotesAreUpdatedWithTheQuotedPost(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair() // ann follows bob
		cat := w.User("cat")
		quoted := w.Post(cat, schema.Public)
		l := w.listenFor(ann, stream.Options{Updates: true})
		p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "look", QuoteOf: quoted})
		require.NoError(w, err)
		w.Drain()
		require.Equal(w, p.ID, l.added())
		w.edit(cat, quoted, "edited")
		w.Drain()
		for _, change := range []func() error{
			func() error { return nil }, // the edit
			func() error { _, err := w.Feed.SetVisibility(w.Ctx, cat, quoted, schema.Private); return err },
			func() error { return w.Feed.DeletePost(w.Ctx, cat, quoted) },
		} {
			require.NoError(w, change())
			w.Drain()
			id, _ := l.updated()
			require.Equal(w, p.ID, id)
		}
	})
}

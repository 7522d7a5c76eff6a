package stream_test

import (
	"testing"

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

package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/stream"
)

// A stream tells of no post with a muted word, alone or among many, and the viewer's
// clients read again when the words change.
func TestMutedWordsAreNotTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		eve := w.User("eve")
		require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(eve.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
		w.AwaitInbox(eve)
		public := schema.Public
		post := func(text string) int64 {
			p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: text, Visibility: &public})
			require.NoError(w, err)
			return p.ID
		}
		l, other := w.listen(ann, nil), w.listen(eve, nil)
		first := post("hello")
		after := l.position()
		require.Equal(w, first, other.added())
		_, _, err := w.Feed.MuteWord(w.Ctx, ann, "cat")
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, after).next(), "one that was away")
		require.Equal(w, post("my cat"), other.added())
		require.Equal(w, post("my dog"), other.added())
		resumed := l.position()
		_, _, err = w.Feed.UnmuteWord(w.Ctx, ann, "cat")
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, resumed).next())
		w.Drain()
		l.expectQuiet("the job of the change tells nothing new")
	})
}

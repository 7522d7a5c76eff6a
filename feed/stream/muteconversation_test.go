package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/stream"
)

// A stream sends no reply in a conversation that its viewer mutes. Muting and unmuting invalidate the
// viewer's streams.
func TestRepliesInMutedConversationsAreNotSent(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair() // ann follows bob
		eve := w.User("eve")
		require.NoError(w, w.Stores.DB.Follow.Create().SetFollowerID(eve.ID).SetFolloweeID(bob.ID).Exec(w.Ctx))
		w.AwaitInbox(eve)
		root := w.Post(bob, schema.Public)
		w.Drain()
		reply := func() int64 {
			w.Helper()
			p, err := w.Feed.CreatePost(w.Ctx, bob, feed.Draft{Text: "reply", ReplyTo: root})
			require.NoError(w, err)
			return p.ID
		}
		l, other := w.listen(ann, nil), w.listen(eve, nil)
		first := reply()
		before := l.position()
		require.Equal(w, first, other.added())
		_, err := w.Feed.MuteConversation(w.Ctx, ann, first)
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, before).next(), "a client that was away")
		require.Equal(w, reply(), other.added())
		plain := w.Post(bob, schema.Public)
		require.Equal(w, plain, other.added())
		resumed := l.position() // of plain: the reply before it is not sent
		w.Drain()
		_, err = w.Feed.UnmuteConversation(w.Ctx, ann, root)
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, l.next())
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, resumed).next())
		w.Drain()
		l.expectQuiet("the job of the change sends no second event")
		require.Equal(w, reply(), l.added())
	})
}

package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/moderation"
	"tideline/feed/stream"
)

// What moderators hide, and show again, is told to those who are connected.
func TestModerationIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.followed()
		id := w.History(bob, 1)[0]
		w.AwaitInbox(ann)
		l := w.listen(ann, nil)
		_, err := w.Moderation.HidePost(w.Ctx, moderation.Console, id, "")
		require.NoError(w, err)
		require.Equal(w, id, l.removed())
		_, err = w.Moderation.UnhidePost(w.Ctx, moderation.Console, id, "")
		require.NoError(w, err)
		require.Equal(w, id, l.added())
		w.Drain()
		// The job of the hidden post, if it comes late, sends once more that the post was gone
		// and is there again. The stream passes that before the next post.
		own := w.Post(ann, schema.Private)
		there := true
		for got := int64(0); got != own; {
			switch ev := l.next().(type) {
			case *stream.PostRemoved:
				require.Equal(w, id, ev.PostID)
				there = false
			case *stream.PostAdded:
				got = ev.Edge.Node.ID
				there = there || got == id
			default:
				require.Fail(w, "another event", "%T", ev)
			}
		}
		require.True(w, there)
		w.Drain()
		for _, judge := range []func() (bool, error){
			func() (bool, error) { return w.Moderation.Suspend(w.Ctx, moderation.Console, bob.ID, "") },
			func() (bool, error) { return w.Moderation.Unsuspend(w.Ctx, moderation.Console, bob.ID, "") },
		} {
			_, err = judge()
			require.NoError(w, err)
			require.IsType(w, &stream.Invalidated{}, l.next())
			w.Drain()
		}
		require.Equal(w, []int64{own, id}, w.Timeline(ann, 9))
	})
}

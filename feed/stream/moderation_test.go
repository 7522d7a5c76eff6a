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
		// The job of the hidden post, too, may have sent that it is gone, which a stream
		// believes if it is so when the stream comes to it. It comes to it before this one.
		own := w.Post(ann, schema.Private)
		require.Equal(w, own, l.added())
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

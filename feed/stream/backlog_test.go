package stream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/stream"
	"tideline/timeline"
)

// While a client reads slowly, each late post is checked again before it is sent. A position
// covers exactly the posts that were sent, even if later posts are hidden.
func TestLateArrivalsAreCheckedAgain(t *testing.T) {
	t.Parallel()
	eachIdle(t, func(w *world) {
		ann, bob := w.pair()
		l := w.listen(ann, nil)
		gone := w.History(bob, 1)[0]
		w.tell(ann, gone)
		after := l.position()
		l.close()
		var late []int64
		for range 6 {
			late = append(late, w.postMinutesAgo(bob))
			w.deliverLate(ann, late[len(late)-1])
		}
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, gone))
		require.NoError(w, w.Timelines.Feeds.Remove(w.Ctx, timeline.Inbox(ann.ID), gone))
		last := w.postMinutesAgo(bob)
		w.deliverLate(ann, last)

		l = w.listen(ann, after)
		first := l.next().(*stream.PostAdded)
		require.Equal(w, late[0], first.Edge.Node.ID)
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, late[1]))
		_, err := w.Feed.SetVisibility(w.Ctx, bob, late[2], schema.Private)
		require.NoError(w, err)
		require.Equal(w, late[3], l.added())
		require.NoError(w, w.Stores.DB.Post.UpdateOneID(late[4]).SetVisibility(schema.Private).Exec(w.Ctx))
		time.Sleep(150 * time.Millisecond) // as if another process hid it: the last check must expire
		require.Equal(w, late[5], l.added())
		require.Equal(w, gone, l.removed())
		end := l.position()
		l.close()

		l = w.listen(ann, &first.Edge.Cursor) // a client that left after this event
		for _, id := range []int64{late[3], late[5]} {
			require.Equal(w, id, l.added())
		}
		removed := l.next().(*stream.PostRemoved)
		require.Equal(w, gone, removed.PostID)
		_, err = w.Feed.SetVisibility(w.Ctx, bob, last, schema.Private)
		require.NoError(w, err)
		all := []listener{l, w.listen(ann, &removed.Position), w.listen(ann, end)}
		next := w.History(bob, 1)[0]
		w.tell(ann, next)
		for _, l := range all {
			require.Equal(w, next, l.added(), "nothing twice, and nothing hidden")
		}
	})
}

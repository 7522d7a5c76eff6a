package feed_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed"
)

// listener is one open subscription.
type listener struct {
	w      *world
	viewer feed.Viewer
	events <-chan feed.Event
	close  context.CancelFunc
}

func (w *world) listen(v feed.Viewer, after *string) listener {
	w.t.Helper()
	return w.listenFor(v, feed.Listening{After: after})
}

func (w *world) listenFor(v feed.Viewer, what feed.Listening) listener {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	events, err := w.feed.TimelineEvents(ctx, v, what)
	require.NoError(w.t, err)
	l := listener{w, v, events, cancel}
	w.t.Cleanup(func() {
		cancel()
		for range events {
		}
	})
	return l
}

func (l listener) next() any {
	l.w.t.Helper()
	select {
	case ev, ok := <-l.events:
		require.True(l.w.t, ok, "the stream has ended")
		return ev
	case <-time.After(30 * time.Second):
		require.Fail(l.w.t, "no event came")
		return nil
	}
}

func (l listener) added() int64 {
	l.w.t.Helper()
	ev := l.next()
	require.IsType(l.w.t, &feed.PostAdded{}, ev)
	return ev.(*feed.PostAdded).Edge.Node.ID
}

func (l listener) removed() int64 {
	l.w.t.Helper()
	ev := l.next()
	require.IsType(l.w.t, &feed.PostRemoved{}, ev)
	return ev.(*feed.PostRemoved).PostID
}

func (l listener) ends() {
	l.w.t.Helper()
	select {
	case _, ok := <-l.events:
		require.False(l.w.t, ok)
	case <-time.After(30 * time.Second):
		require.Fail(l.w.t, "the stream goes on")
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob, eve := w.user("ann"), w.user("bob"), w.user("eve")
		w.follow(ann, bob)
		w.follow(eve, bob)
		w.settle()
		w.ready(ann)
		toAnn, toAnn2, toBob, toEve := w.listen(ann, nil), w.listen(ann, nil), w.listen(bob, nil), w.listen(eve, nil)

		first := w.post(bob, schema.Public)
		for _, l := range []listener{toAnn, toAnn2, toBob, toEve} {
			require.Equal(w.t, first, l.added())
		}
		_, err := w.feed.SetVisibility(w.ctx, bob, first, schema.Private)
		require.NoError(w.t, err)
		for _, l := range []listener{toAnn, toAnn2, toEve} {
			require.Equal(w.t, first, l.removed())
		}
		second := w.post(bob, schema.Followers)
		require.Equal(w.t, second, toAnn.added())
		require.NoError(w.t, w.feed.DeletePost(w.ctx, bob, second))
		require.Equal(w.t, second, toAnn.removed())

		third := w.post(bob, schema.Public)
		require.Equal(w.t, third, toAnn.added())
		_, err = w.feed.Block(w.ctx, bob, ann.ID)
		require.NoError(w.t, err)
		require.IsType(w.t, &feed.Invalidated{}, toAnn.next())
		w.post(bob, schema.Public)
		w.settle()
		mine := w.post(ann, schema.Public)
		require.Equal(w.t, mine, toAnn.added(), "nothing of the blocker's in between")
	})
}

func TestResumeBringsWhatWasMissed(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.user("ann"), w.user("bob")
		w.follow(ann, bob)
		w.settle()
		w.ready(ann)
		l := w.listen(ann, nil)
		w.post(bob, schema.Public)
		seen := l.next().(*feed.PostAdded).Edge.Cursor
		l.close()
		var missed []int64
		for range 5 {
			missed = append(missed, w.post(bob, schema.Public))
		}
		w.post(bob, schema.Private)
		w.settle()
		l = w.listen(ann, &seen)
		for _, id := range missed {
			require.Equal(w.t, id, l.added())
		}
		next := w.post(bob, schema.Public)
		require.Equal(w.t, next, l.added())

		w.history(bob, inboxCap)
		require.NoError(w.t, w.s.Redis.FlushAll(w.ctx).Err())
		require.IsType(w.t, &feed.Invalidated{}, w.listen(ann, &seen).next(), "too much to replay is said")
	})
}

func TestLogOutEndsItsSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		auth, err := w.feed.SignUp(w.ctx, "ann", "correct horse", "")
		require.NoError(w.t, err)
		first, _, err := w.feed.Authenticate(w.ctx, auth.Token)
		require.NoError(w.t, err)
		auth, err = w.feed.LogIn(w.ctx, "ann", "correct horse")
		require.NoError(w.t, err)
		second, _, err := w.feed.Authenticate(w.ctx, auth.Token)
		require.NoError(w.t, err)
		l1, l2 := w.listen(first, nil), w.listen(second, nil)
		require.NoError(w.t, w.feed.LogOut(w.ctx, first))
		l1.ends()
		id := w.post(second, schema.Public)
		require.Equal(w.t, id, l2.added())
	})
}

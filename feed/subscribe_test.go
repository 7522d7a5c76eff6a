package feed_test

import (
	"context"
	"slices"
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
	ctx    context.Context
	stream *feed.Stream
	news   chan struct{}
	close  context.CancelFunc
}

func (w *world) listen(v feed.Viewer, after *string) listener {
	w.t.Helper()
	return w.listenFor(v, feed.Listening{After: after})
}

func (w *world) listenFor(v feed.Viewer, what feed.Listening) listener {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	news := make(chan struct{}, 1)
	stream, err := w.feed.Listen(ctx, v, what, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	require.NoError(w.t, err)
	w.t.Cleanup(cancel)
	return listener{w, v, ctx, stream, news, cancel}
}

// take is the next event, ok=false at the end.
func (l listener) take() (ev any, ok bool) {
	l.w.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		ev, ok := l.stream.Next(l.ctx)
		if ok || l.stream.Ended() {
			return ev, ok
		}
		select {
		case <-l.news:
		case <-timeout:
			require.Fail(l.w.t, "no event came")
			return nil, false
		}
	}
}

func (l listener) next() any {
	l.w.t.Helper()
	ev, ok := l.take()
	require.True(l.w.t, ok, "the stream has ended")
	return ev
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
	_, ok := l.take()
	require.False(l.w.t, ok)
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
		w.settle() // or its fan-out, too, would take back what it had told
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

// Whatever hides a post reaches open subscriptions, and nothing of it comes after.
func TestWhatIsHiddenIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		kept := w.user("kept")
		w.follow(ann, kept)
		w.settle()
		for name, hide := range map[string]func(id int64) error{
			"deleted":    func(id int64) error { return w.feed.DeletePost(w.ctx, bob, id) },
			"narrowed":   func(id int64) error { _, err := w.feed.SetVisibility(w.ctx, bob, id, schema.Private); return err },
			"unfollowed": func(int64) error { _, err := w.feed.Unfollow(w.ctx, ann, bob.ID); return err },
			"muted":      func(int64) error { _, err := w.feed.Mute(w.ctx, ann, bob.ID); return err },
			"blocked":    func(int64) error { _, err := w.feed.Block(w.ctx, ann, bob.ID); return err },
		} {
			_, err := w.feed.Unblock(w.ctx, ann, bob.ID)
			require.NoError(w.t, err)
			_, err = w.feed.Unmute(w.ctx, ann, bob.ID)
			require.NoError(w.t, err)
			w.follow(ann, bob)
			w.settle()
			l := w.listen(ann, nil)
			id := w.post(bob, schema.Public)
			require.Equal(w.t, id, l.added(), name)
			require.NoError(w.t, hide(id), name)
			w.t.Log(name)
			for told := false; !told; {
				switch ev := l.next().(type) {
				case *feed.PostRemoved:
					told = ev.PostID == id // else an older one of bob's, hidden with it
				case *feed.Invalidated:
					told = true
				default:
					require.Fail(w.t, name, "%T", ev)
				}
			}
			w.tell(ann, id) // of a fan-out that is behind
			w.settle()
			for last := w.post(kept, schema.Public); ; {
				ev := l.next()
				if added, ok := ev.(*feed.PostAdded); ok {
					require.Equal(w.t, last, added.Edge.Node.ID, name)
					break
				}
				if _, ok := ev.(*feed.Invalidated); ok && slices.Contains(w.timeline(ann, 5), last) {
					break // who reads again has it
				}
			}
			l.close()
		}
	})
}

// Who could not see a post is not told that it is gone, nor which one it was.
func TestRemovalsAreToldToWhoCouldSee(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		cara := w.user("cara")
		w.befriend(cara, bob)
		w.settle()
		w.ready(cara)
		first := w.post(bob, schema.Public)
		w.settle()
		ofAnn, ofCara := w.top(ann), w.top(cara)
		follower, friend := w.listen(ann, ofAnn), w.listen(cara, ofCara)

		secret := w.post(bob, schema.Private)
		w.settle()
		require.NoError(w.t, w.feed.DeletePost(w.ctx, bob, secret))
		intimate := w.post(bob, schema.Mutuals)
		require.Equal(w.t, intimate, friend.added())
		w.settle() // one job at a time, or what it takes back of another's is told at large
		for i, v := range []schema.Visibility{schema.Private, schema.Mutuals, schema.Private} {
			_, err := w.feed.SetVisibility(w.ctx, bob, intimate, v)
			require.NoError(w.t, err)
			told := friend.removed
			if i == 1 {
				told = friend.added
			}
			require.Equal(w.t, intimate, told())
			w.settle()
		}
		require.NoError(w.t, w.feed.DeletePost(w.ctx, bob, first))
		w.settle()
		require.Equal(w.t, first, follower.removed())
		require.Equal(w.t, first, friend.removed())
		follower.expectNothingBefore(bob)
		require.Equal(w.t, first, w.listen(ann, ofAnn).removed(), "also when resuming")
	})
}

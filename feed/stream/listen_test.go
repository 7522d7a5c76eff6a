package stream_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent/schema"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/feed/stream"
)

// listener is one open subscription.
type listener struct {
	w      *world
	viewer session.Viewer
	ctx    context.Context
	stream *stream.Stream
	news   chan struct{}
	close  context.CancelFunc
}

func (w *world) listen(v session.Viewer, after *string) listener {
	w.Helper()
	return w.listenFor(v, stream.Options{After: after})
}

func (w *world) listenFor(v session.Viewer, what stream.Options) listener {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Ctx)
	news := make(chan struct{}, 1)
	stream, err := w.Streams.Listen(ctx, v, what, func() {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	require.NoError(w, err)
	w.Cleanup(cancel)
	return listener{w, v, ctx, stream, news, cancel}
}

// take waits for the next event. ok is false when the stream has ended.
func (l listener) take() (ev any, ok bool) {
	l.w.Helper()
	timeout := time.After(30 * time.Second)
	for {
		ev, ok := l.stream.Next(l.ctx)
		if ok || l.stream.Ended() {
			return ev, ok
		}
		select {
		case <-l.news:
		case <-timeout:
			require.Fail(l.w, "no event came")
			return nil, false
		}
	}
}

func (l listener) next() any {
	l.w.Helper()
	ev, ok := l.take()
	require.True(l.w, ok, "the stream has ended")
	return ev
}

func (l listener) added() int64 {
	l.w.Helper()
	ev := l.next()
	require.IsType(l.w, &stream.PostAdded{}, ev)
	return ev.(*stream.PostAdded).Edge.Node.ID
}

func (l listener) removed() int64 {
	l.w.Helper()
	ev := l.next()
	require.IsType(l.w, &stream.PostRemoved{}, ev)
	return ev.(*stream.PostRemoved).PostID
}

func (l listener) ends() {
	l.w.Helper()
	_, ok := l.take()
	require.False(l.w, ok)
}

func TestLive(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob, eve := w.User("ann"), w.User("bob"), w.User("eve")
		w.Follow(ann, bob)
		w.Follow(eve, bob)
		w.Drain()
		w.AwaitInbox(ann)
		toAnn, toAnn2, toBob, toEve := w.listen(ann, nil), w.listen(ann, nil), w.listen(bob, nil), w.listen(eve, nil)

		first := w.Post(bob, schema.Public)
		for _, l := range []listener{toAnn, toAnn2, toBob, toEve} {
			require.Equal(w, first, l.added())
		}
		_, err := w.Feed.SetVisibility(w.Ctx, bob, first, schema.Private)
		require.NoError(w, err)
		for _, l := range []listener{toAnn, toAnn2, toEve} {
			require.Equal(w, first, l.removed())
		}
		second := w.Post(bob, schema.Followers)
		require.Equal(w, second, toAnn.added())
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, second))
		require.Equal(w, second, toAnn.removed())
		w.Drain() // both the fan-out and the deletion may send a removal

		third := w.Post(bob, schema.Public)
		require.Equal(w, third, toAnn.added())
		w.Drain() // otherwise the fan-out would also withdraw the post
		_, err = w.Feed.Block(w.Ctx, bob, ann.ID)
		require.NoError(w, err)
		require.IsType(w, &stream.Invalidated{}, toAnn.next())
		w.Post(bob, schema.Public)
		w.Drain()
		mine := w.Post(ann, schema.Public)
		require.Equal(w, mine, toAnn.added(), "nothing of the blocker's in between")
	})
}

func TestResumeBringsWhatWasMissed(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.User("ann"), w.User("bob")
		w.Follow(ann, bob)
		w.Drain()
		w.AwaitInbox(ann)
		l := w.listen(ann, nil)
		w.Post(bob, schema.Public)
		seen := l.next().(*stream.PostAdded).Edge.Cursor
		l.close()
		var missed []int64
		for range 5 {
			missed = append(missed, w.Post(bob, schema.Public))
		}
		w.Post(bob, schema.Private)
		w.Drain()
		l = w.listen(ann, &seen)
		for _, id := range missed {
			require.Equal(w, id, l.added())
		}
		next := w.Post(bob, schema.Public)
		require.Equal(w, next, l.added())

		w.History(bob, feedtest.InboxCap)
		require.NoError(w, w.Stores.Redis.FlushAll(w.Ctx).Err())
		require.IsType(w, &stream.Invalidated{}, w.listen(ann, &seen).next(), "too much to replay is said")
	})
}

func TestLogOutEndsItsSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, out, stays session.Viewer) error{
		"log-out": func(w *world, out, _ session.Viewer) error { return w.Sessions.LogOut(w.Ctx, out) },
		"change of the password": func(w *world, _, stays session.Viewer) error {
			_, err := w.Login.ChangePassword(w.Ctx, stays, "correct horse", "battery staple")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				auth, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
				require.NoError(w, err)
				first, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
				require.NoError(w, err)
				auth, err = w.Login.LogIn(w.Ctx, "ann", "correct horse")
				require.NoError(w, err)
				second, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
				require.NoError(w, err)
				l1, l2 := w.listen(first, nil), w.listen(second, nil)
				w.Run(func(ctx context.Context) error { return w.Sessions.Run(ctx, w.Hub) })
				require.NoError(w, end(w, first, second))
				l1.ends()
				id := w.Post(second, schema.Public)
				require.Equal(w, id, l2.added())
			})
		})
	}
}

// Every change that hides a post reaches open subscriptions, and no event of the post follows.
func TestWhatIsHiddenIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		kept := w.User("kept")
		w.Follow(ann, kept)
		w.Drain()
		for name, hide := range map[string]func(id int64) error{
			"deleted":    func(id int64) error { return w.Feed.DeletePost(w.Ctx, bob, id) },
			"narrowed":   func(id int64) error { _, err := w.Feed.SetVisibility(w.Ctx, bob, id, schema.Private); return err },
			"unfollowed": func(int64) error { _, err := w.Feed.Unfollow(w.Ctx, ann, bob.ID); return err },
			"muted":      func(int64) error { _, err := w.Feed.Mute(w.Ctx, ann, bob.ID); return err },
			"blocked":    func(int64) error { _, err := w.Feed.Block(w.Ctx, ann, bob.ID); return err },
		} {
			_, err := w.Feed.Unblock(w.Ctx, ann, bob.ID)
			require.NoError(w, err)
			_, err = w.Feed.Unmute(w.Ctx, ann, bob.ID)
			require.NoError(w, err)
			w.Follow(ann, bob)
			w.Drain()
			l := w.listen(ann, nil)
			id := w.Post(bob, schema.Public)
			require.Equal(w, id, l.added(), name)
			require.NoError(w, hide(id), name)
			w.Log(name)
			for told := false; !told; {
				switch ev := l.next().(type) {
				case *stream.PostRemoved:
					told = ev.PostID == id // otherwise an older post of bob, hidden by the same change
				case *stream.Invalidated:
					told = true
				default:
					require.Fail(w, name, "%T", ev)
				}
			}
			w.tell(ann, id) // as from a slow fan-out
			w.Drain()
			for last := w.Post(kept, schema.Public); ; {
				ev := l.next()
				if added, ok := ev.(*stream.PostAdded); ok {
					require.Equal(w, last, added.Edge.Node.ID, name)
					break
				}
				if _, ok := ev.(*stream.Invalidated); ok && slices.Contains(w.Timeline(ann, 5), last) {
					break // the client has the post when it reads again
				}
			}
			l.close()
		}
	})
}

// A user who could not see a post receives no removal of it.
func TestRemovalsAreToldToThoseWhoCouldSee(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		ann, bob := w.pair()
		cara := w.User("cara")
		w.Befriend(cara, bob)
		w.Drain()
		w.AwaitInbox(cara)
		first := w.Post(bob, schema.Public)
		w.Drain()
		ofAnn, ofCara := w.Top(ann), w.Top(cara)
		follower, friend := w.listen(ann, ofAnn), w.listen(cara, ofCara)

		secret := w.Post(bob, schema.Private)
		w.Drain()
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, secret))
		intimate := w.Post(bob, schema.Mutuals)
		require.Equal(w, intimate, friend.added())
		w.Drain() // one job at a time: if a second attempt withdraws a post, all recipients receive the removal
		for i, v := range []schema.Visibility{schema.Private, schema.Mutuals, schema.Private} {
			_, err := w.Feed.SetVisibility(w.Ctx, bob, intimate, v)
			require.NoError(w, err)
			told := friend.removed
			if i == 1 {
				told = friend.added
			}
			require.Equal(w, intimate, told())
			w.Drain()
		}
		require.NoError(w, w.Feed.DeletePost(w.Ctx, bob, first))
		w.Drain()
		require.Equal(w, first, follower.removed())
		require.Equal(w, first, friend.removed())
		follower.expectNothingBefore(bob)
		require.Equal(w, first, w.listen(ann, ofAnn).removed(), "also when resuming")
	})
}

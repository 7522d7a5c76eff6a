package userstate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/userstate"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// watcher is a watch, with a channel that receives when the watch is woken.
type watcher struct {
	w *feedtest.World
	*userstate.Watch
	woken chan struct{}
}

func watch(w *feedtest.World, v session.Viewer, users ...session.Viewer) watcher {
	w.Helper()
	woken := make(chan struct{}, 1)
	ids := []int64{1 << 40} // of nobody
	for _, u := range users {
		ids = append(ids, u.ID)
	}
	got, err := w.Backend.Users.Watch(w.Ctx, v, ids, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	require.NoError(w, err)
	return watcher{w, got, woken}
}

// takes takes an event, which must be about the users.
func (s watcher) takes(want ...session.Viewer) []*ent.User {
	s.w.Helper()
	<-s.woken
	event, ok := s.Next(s.w.Ctx)
	require.True(s.w, ok)
	var got, ids []int64
	for _, u := range event {
		got = append(got, u.ID)
	}
	for _, u := range want {
		ids = append(ids, u.ID)
	}
	require.ElementsMatch(s.w, ids, got)
	require.True(s.w, s.Confirm(s.w.Ctx, event, true))
	return event
}

// quiet requires that there is no event to take, after another read.
func (s watcher) quiet(why string) {
	s.w.Helper()
	s.w.Backend.Users.Look(s.w.Ctx)
	event, ok := s.Next(s.w.Ctx)
	require.False(s.w, ok, "%s: %v", why, event)
}

// What changes about a user comes once, and to the watchers of the user; the viewer's relation comes
// to the viewer alone.
func TestChangesComeOnce(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(4)
		ann, bob, cat, dan := users[0], users[1], users[2], users[3]
		_, err := w.Backend.Users.Watch(w.Ctx, session.Viewer{}, []int64{ann.ID}, func() {})
		require.ErrorIs(w, err, refusal.ErrSignIn)
		phone, desk, other := watch(w, ann, ann, bob, cat), watch(w, ann, ann, bob), watch(w, dan, bob)
		phone.takes(ann, bob, cat)
		desk.takes(ann, bob)
		other.takes(bob)
		for _, s := range []watcher{phone, desk, other} {
			s.quiet("nothing changed")
		}

		w.Follow(ann, bob)
		w.Backend.Users.Look(w.Ctx)
		for _, s := range []watcher{phone, desk} {
			s.takes(ann, bob) // ann follows one more
			s.quiet("it was sent")
		}
		require.Equal(w, 1, other.takes(bob)[0].FollowerCount)
		other.quiet("it was sent")

		_, err = w.Feed.Mute(w.Ctx, ann, cat.ID)
		require.NoError(w, err)
		w.Backend.Users.Look(w.Ctx)
		phone.takes(ann, cat) // ann's list of muted users changed
		desk.takes(ann)
		other.quiet("a mute concerns only the one who mutes")

		name := "Robert"
		_, err = w.Accounts.UpdateProfile(w.Ctx, bob, account.Profile{Name: &name})
		require.NoError(w, err)
		w.Post(bob, schema.Public)
		w.Backend.Users.Look(w.Ctx)
		for _, s := range []watcher{phone, desk, other} {
			require.Equal(w, "Robert", s.takes(bob)[0].Name)
			s.quiet("it was sent")
		}

		_, err = w.Feed.Block(w.Ctx, cat, ann.ID)
		require.NoError(w, err)
		phone.quiet("nobody is told that somebody blocks them")
	})
}

// A follow request comes to the one who is asked, and to the one who asks.
func TestFollowRequestsAreChanges(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(2)
		ann, bob := users[0], users[1]
		require.NoError(w, w.Stores.DB.User.UpdateOneID(bob.ID).SetApprovesFollowers(true).Exec(w.Ctx))
		asks, asked := watch(w, ann, bob), watch(w, bob, bob)
		asks.takes(bob)
		asked.takes(bob)
		_, err := w.Feed.Follow(w.Ctx, ann, bob.ID)
		require.NoError(w, err)
		w.Backend.Users.Look(w.Ctx)
		asks.takes(bob)
		asked.takes(bob)
	})
}

// A user who is suspended between the read and the response is not sent.
func TestHiddenUsersAreNotSent(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		users := w.Users(2)
		ann, bob := users[0], users[1]
		s := watch(w, ann, bob)
		s.takes(bob)
		w.Follow(ann, bob)
		w.Backend.Users.Look(w.Ctx)
		<-s.woken
		event, ok := s.Next(w.Ctx)
		require.True(w, ok)
		_, err := w.Accounts.Suspend(w.Ctx, bob.ID, account.Suspension{}, func(*ent.Tx, *ent.User) error { return nil })
		require.NoError(w, err)
		require.False(w, s.Confirm(w.Ctx, event, true))
		s.quiet("bob is hidden")
	})
}

// The watch ends with its context, and with an error if the first event cannot be read. A later error
// only delays the event.
func TestWatchesEnd(t *testing.T) {
	feedtest.EachIdle(t, func(w *feedtest.World) {
		ann := w.Users(1)[0]
		ctx, cancel := context.WithCancel(w.Ctx)
		s, err := w.Backend.Users.Watch(ctx, ann, []int64{ann.ID}, func() {})
		require.NoError(w, err)
		_, ok := s.Next(ctx)
		require.True(w, ok)
		cancel()
		_, ok = s.Next(ctx)
		require.Equal(w, []bool{false, true}, []bool{ok, s.Ended()})
		require.NoError(w, s.Err())

		gone, stop := context.WithCancel(w.Ctx)
		stop()
		begun, fresh := watch(w, ann, ann), watch(w, ann, ann)
		begun.takes(ann)
		w.Follow(ann, w.User("another"))
		w.Backend.Users.Look(gone) // nothing can be read
		_, ok = begun.Next(w.Ctx)
		require.False(w, ok)
		w.Backend.Users.Look(w.Ctx)
		begun.takes(ann)
		fresh.takes(ann)
	})
}

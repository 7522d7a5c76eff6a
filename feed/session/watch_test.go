package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/feedtest"
	"tideline/feed/session"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// watched are two sessions of one user, whose ends are watched at one process.
type watched struct {
	*feedtest.World
	elsewhere *feedtest.World
	viewers   [2]session.Viewer
	ended     [2]atomic.Int32
	stop      [2]func()
}

func newWatched(t *testing.T, s *storage.Stores) *watched {
	w := &watched{World: feedtest.New(t, s, feedtest.Options{}), elsewhere: feedtest.New(t, s, feedtest.Options{})}
	_, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
	require.NoError(t, err)
	for i := range w.viewers {
		auth, err := w.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(t, err)
		w.viewers[i], _, err = w.Sessions.Authenticate(w.Ctx, auth.Token)
		require.NoError(t, err)
		w.stop[i] = w.Sessions.Watch(w.viewers[i], func() { w.ended[i].Add(1) })
	}
	return w
}

func (w *watched) clear() {
	_, err := w.Stores.SQL.ExecContext(w.Ctx, "DELETE FROM users")
	require.NoError(w, err)
}

func eachWatched(t *testing.T, test func(w *watched)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) { test(newWatched(t, s)) })
}

// A watch ends when another process ends its session, alone or with others of the user.
func TestEndElsewhereEndsAWatch(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for name, end := range map[string]func(w *watched) error{
			"one": func(w *watched) error { return w.elsewhere.Sessions.LogOut(w.Ctx, w.viewers[0]) },
			"all but one": func(w *watched) error {
				_, err := w.elsewhere.Login.ChangePassword(w.Ctx, w.viewers[1], "correct horse", "battery staple")
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWatched(t, s)
				w.Run(w.Hub.Run)
				w.Run(func(ctx context.Context) error { return w.Sessions.Run(ctx, w.Hub) })
				require.NoError(t, end(w))
				require.Eventually(t, func() bool { return w.ended[0].Load() > 0 }, time.Minute, time.Millisecond)
				require.NoError(t, w.Sessions.Check(w.Ctx))
				require.Zero(t, w.ended[1].Load(), "the other session is open")
				w.clear()
			})
		}
	})
}

// A watch ends after the next check even if the message about the end was lost. A watch that was
// stopped does not end.
func TestLostEndEndsAWatch(t *testing.T) {
	t.Parallel()
	eachWatched(t, func(w *watched) {
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.Zero(w, w.ended[0].Load())
		_, err := w.elsewhere.Sessions.LogOutEverywhere(w.Ctx, w.viewers[1])
		require.NoError(w, err)
		w.stop[1]()
		require.Zero(w, w.ended[0].Load(), "the process was not told")
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.EqualValues(w, 1, w.ended[0].Load())
		require.Zero(w, w.ended[1].Load())
		w.stop[0]()
		queries := storagetest.CountQueries(w.Stores)
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.Zero(w, queries(), "nothing is watched any more")
	})
}

// The watch of an API key ends when the key is revoked, or may no longer act for its user.
// Anonymous viewers are not watched.
func TestEndOfAKeyEndsAWatch(t *testing.T) {
	t.Parallel()
	eachWatched(t, func(w *watched) {
		key, _, err := w.Keys.Create(w.Ctx, nil, "a backend", "app", []apikey.Scope{apikey.Read})
		require.NoError(w, err)
		var revoked, away, never atomic.Int32
		w.Sessions.Watch(session.Viewer{Session: -key.ID, Key: key}, func() { revoked.Add(1) })
		w.Sessions.Watch(session.Viewer{ID: w.viewers[0].ID, Session: -key.ID, Key: key}, func() { away.Add(1) })
		w.Sessions.Watch(session.Viewer{}, func() { never.Add(1) })
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.Zero(w, revoked.Load()+away.Load())
		_, err = w.Accounts.Suspend(w.Ctx, w.viewers[0].ID, account.Suspension{}, func(*ent.Tx, *ent.User) error { return nil })
		require.NoError(w, err)
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.Zero(w, revoked.Load())
		require.EqualValues(w, 1, away.Load())
		_, err = w.Keys.Revoke(w.Ctx, nil, key.ID)
		require.NoError(w, err)
		require.NoError(w, w.Sessions.Check(w.Ctx))
		require.EqualValues(w, 1, revoked.Load())
		require.Zero(w, never.Load())
	})
}

// An operation that ends several sessions sends one message to each process.
func TestSessionsEndByOneMessage(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.SignUp("ann", "correct horse")
		_, err := w.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(w, err)
		w.Run(w.Hub.Run)
		woken := make(chan struct{}, 1)
		told, err := w.Hub.Subscribe(w.Ctx, session.AllProcesses, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
		require.NoError(w, err)
		defer told.Close()
		_, err = w.Sessions.LogOutEverywhere(w.Ctx, ann)
		require.NoError(w, err)
		_, err = w.Publisher.Publish(w.Ctx, live.Event{Kind: live.MarkerMoved}, []int64{session.AllProcesses})
		require.NoError(w, err)
		var kinds []live.Kind
		for len(kinds) == 0 || kinds[len(kinds)-1] != live.MarkerMoved {
			event, ok := told.Take()
			if !ok {
				<-woken
				continue
			}
			kinds = append(kinds, event.Kind)
		}
		require.Equal(w, []live.Kind{live.SessionEnded, live.MarkerMoved}, kinds)
	})
}

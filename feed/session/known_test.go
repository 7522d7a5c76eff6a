package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/live"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// processes are two processes on the same stores. The first receives ended sessions, and its
// clock stands still.
type processes struct {
	*feedtest.World
	elsewhere *feedtest.World
	token     string
	at        time.Time
}

func newProcesses(t *testing.T, s *storage.Stores, hub func(*feedtest.World) *live.Hub) *processes {
	p := &processes{at: time.Now()}
	p.World = feedtest.New(t, s, feedtest.Options{Now: func() time.Time { return p.at }})
	p.elsewhere = feedtest.New(t, s, feedtest.Options{})
	auth, err := p.Login.SignUp(p.Ctx, "ann", "correct horse", "")
	require.NoError(t, err)
	p.token = auth.Token
	heard := hub(p.World)
	p.Run(func(ctx context.Context) error { return p.Sessions.Hear(ctx, heard) })
	return p
}

// remembered waits until the session is found without SQL.
func (p *processes) remembered() (v session.Viewer) {
	require.Eventually(p, func() bool {
		asked := storagetest.CountQueries(p.Stores)
		var err error
		v, _, err = p.Sessions.Authenticate(p.Ctx, p.token)
		require.NoError(p, err)
		return asked() == 0
	}, time.Minute, time.Millisecond)
	return v
}

func (p *processes) refuses() bool {
	_, _, err := p.Sessions.Authenticate(p.Ctx, p.token)
	return refusal.CodeOf(err) == refusal.Unauthenticated
}

// A log-out at another process ends a remembered session by its event, and so does the end of all
// sessions: the clock stands still, so SQL is not queried.
func TestLogOutElsewhereEndsARememberedSession(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for name, end := range map[string]func(p *processes, v session.Viewer) error{
			"one": func(p *processes, v session.Viewer) error { return p.elsewhere.Sessions.LogOut(p.Ctx, v) },
			"all": func(p *processes, v session.Viewer) error {
				_, err := p.elsewhere.Sessions.LogOutEverywhere(p.Ctx, v)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				p := newProcesses(t, s, func(w *feedtest.World) *live.Hub {
					w.Run(w.Hub.Run)
					return w.Hub
				})
				v := p.remembered()
				require.NoError(t, end(p, v))
				require.Eventually(t, p.refuses, time.Minute, time.Millisecond)
				_, err := s.SQL.ExecContext(p.Ctx, "DELETE FROM users")
				require.NoError(t, err)
			})
		}
	})
}

// A process whose hub is disconnected receives no log-out. It refuses the session after the next
// check of the sessions in use, or at the latest when its last answer is too old.
func TestLostEndOfARememberedSession(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for name, find := range map[string]func(p *processes){
			"by the check": func(p *processes) { require.NoError(p, p.Sessions.Check(p.Ctx)) },
			"by the age":   func(p *processes) { p.at = p.at.Add(session.TrustFor + time.Millisecond) },
		} {
			t.Run(name, func(t *testing.T) {
				p := newProcesses(t, s, func(w *feedtest.World) *live.Hub { return w.Hub }) // the hub does not run
				v := p.remembered()
				require.NoError(t, p.elsewhere.Sessions.LogOut(p.Ctx, v))
				require.False(t, p.refuses(), "it is not known yet")
				find(p)
				require.True(t, p.refuses())
				_, err := s.SQL.ExecContext(p.Ctx, "DELETE FROM users")
				require.NoError(t, err)
			})
		}
	})
}

// A check extends the trust in an answer of SQL, so a session in use costs no query of its own.
func TestCheckedSessionStaysRemembered(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		p := newProcesses(t, s, func(w *feedtest.World) *live.Hub { return w.Hub })
		p.remembered()
		for range 10 {
			p.at = p.at.Add(session.TrustFor / 2)
			require.NoError(t, p.Sessions.Check(p.Ctx))
			asked := storagetest.CountQueries(s)
			require.False(t, p.refuses())
			require.Zero(t, asked())
		}
		require.NoError(t, p.Sessions.LogOut(p.Ctx, p.remembered()))
		require.True(t, p.refuses(), "a log-out here is known at once")
	})
}

// A sign-out at another process ends a remembered user of an issuer by its event: the clock
// stands still, so SQL is not queried.
func TestSignOutElsewhereEndsARememberedUser(t *testing.T) {
	at := time.Now()
	feedtest.EachWithIssuers(t, feedtest.Options{Now: func() time.Time { return at }}, func(t *testing.T, w *feedtest.World) {
		w.Run(w.Hub.Run)
		w.Run(func(ctx context.Context) error { return w.Sessions.Hear(ctx, w.Hub) })
		token := feedtest.TokenOf(t, "app", "ann", at.Add(-time.Minute), nil)
		v, fresh := w.SignIn(token), 0
		require.Eventually(t, func() bool { // the hub may clear everything when it comes online
			fresh++
			another := feedtest.TokenOf(t, "app", "ann", at.Add(-time.Minute), jwt.MapClaims{"jti": fmt.Sprint(fresh)})
			asked := storagetest.CountQueries(w.Stores)
			require.Equal(t, v, w.SignIn(another))
			return asked() == 0
		}, time.Minute, time.Millisecond, "a new token of a user in use asks SQL for nothing")
		elsewhere := feedtest.New(t, w.Stores, feedtest.Options{})
		_, err := elsewhere.Sessions.SignOut(w.Ctx, v.ID)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, _, err := w.Login.Authenticate(w.Ctx, token)
			return refusal.CodeOf(err) == refusal.Unauthenticated
		}, time.Minute, time.Millisecond)
	})
}

// Recall costs no statement, and returns nothing that Authenticate would refuse.
func TestRecallCostsNothing(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		auth, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
		require.NoError(t, err)
		w.Run(w.Hub.Run)
		w.Run(func(ctx context.Context) error { return w.Sessions.Hear(ctx, w.Hub) })
		issued := time.Now().Add(-time.Minute)
		token := feedtest.TokenOf(t, "app", "7", issued, nil)
		for name, credential := range map[string]string{"session": auth.Token, "token of an issuer": token} {
			wrong := []string{credential + "x", feedtest.TokenOf(t, "app", "8", issued, nil), "tk_1_" + strings.Repeat("A", 43), ""}
			var v session.Viewer
			// Until Hear has subscribed, it forgets sessions, and its check of them may be counted.
			require.Eventually(t, func() bool {
				var expires time.Time
				v, expires, err = w.Login.Authenticate(w.Ctx, credential)
				require.NoError(t, err)
				asked := storagetest.CountQueries(w.Stores)
				recalled, until, known := w.Login.Recall(credential)
				for _, wrong := range wrong {
					_, _, known := w.Login.Recall(wrong)
					require.False(t, known, wrong)
				}
				if !known || asked() != 0 {
					return false
				}
				require.Equal(t, v, recalled)
				require.Equal(t, expires, until)
				return true
			}, time.Minute, time.Millisecond)
			_, err = w.Sessions.SignOut(w.Ctx, v.ID)
			require.NoError(t, err)
			_, _, known := w.Login.Recall(credential)
			require.False(t, known, name)
		}
	})
}

package login_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/identity"
	"tideline/feed/moderation"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

// The first token of a user creates the user, and later ones find the same user. The same id at
// another issuer is another user.
func TestFirstTokenMakesTheUser(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		now := time.Now()
		first := feedtest.TokenOf(t, "app", "7", now, jwt.MapClaims{"preferred_username": "Ada.Lovelace@example.com", "name": " Ada\n Lovelace "})
		v := w.SignIn(first)
		_, expires, err := w.Login.Authenticate(w.Ctx, first)
		require.NoError(t, err)
		require.WithinDuration(t, time.Unix(now.Unix(), 0).Add(time.Hour+time.Minute), expires, 0)
		u := w.Stores.DB.User.GetX(w.Ctx, v.ID)
		require.Equal(t, "ada_lovelace", u.Handle)
		require.Equal(t, "Ada Lovelace", u.Name)
		require.Equal(t, v, w.SignIn(feedtest.TokenOf(t, "app", "7", now, jwt.MapClaims{"jti": "2", "name": "Another"})))
		require.Equal(t, "Ada Lovelace", w.Stores.DB.User.GetX(w.Ctx, v.ID).Name, "the profile is the user's own")
		require.NotEqual(t, v.ID, w.SignIn(feedtest.TokenOf(t, "open", "7", now, nil)).ID)
		_, err = w.Login.LogIn(w.Ctx, "ada_lovelace", "-")
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err))
		for _, key := range []string{"app7", "3:app7", "app\x007", first} {
			_, _, err := w.Sessions.Authenticate(w.Ctx, key)
			require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err), "no text stands for the session of an issuer's user")
		}
	})
}

// Concurrent first tokens, at this process and another, create one user.
func TestFirstTokensAtOnceMakeOneUser(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		other := feedtest.New(t, w.Stores, feedtest.Options{Issuers: newVerifierOfSecret(t)})
		now := time.Now()
		const users, each = 5, 8
		var mu sync.Mutex
		found := map[int]map[session.Viewer]bool{}
		var all sync.WaitGroup
		for u := range users {
			found[u] = map[session.Viewer]bool{}
		}
		for u := range users {
			for i := range each {
				token := feedtest.TokenOf(t, "app", fmt.Sprint(u), now, jwt.MapClaims{"jti": fmt.Sprint(i), "preferred_username": "same"})
				all.Go(func() {
					v, _, err := []*feedtest.World{w, other}[i%2].Login.Authenticate(w.Ctx, token)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					found[u][v] = true
				})
			}
		}
		all.Wait()
		for u := range users {
			require.Len(t, found[u], 1)
		}
		require.Equal(t, users, w.Stores.DB.User.Query().CountX(w.Ctx))
		require.Equal(t, users, w.Stores.DB.Session.Query().CountX(w.Ctx))
		require.Equal(t, 1, w.Stores.DB.User.Query().Where(user.Handle("same")).CountX(w.Ctx))
		handles := w.Stores.DB.User.Query().Select(user.FieldHandle).StringsX(w.Ctx)
		for _, h := range handles {
			require.Regexp(t, regexp.MustCompile(`^same(_[a-z2-7]{4})?$`), h)
		}
	})
}

func newVerifierOfSecret(t *testing.T) *identity.Verifier {
	issuers, err := identity.Read(`[{"issuer": "app", "audience": "tideline", "secret_env": "APP_SECRET"}]`)
	require.NoError(t, err)
	return identity.New(identity.Config{Issuers: issuers})
}

// For any claims in the token, the handle and the name are valid for a sign-up, and contain no
// part of an id or an address.
func TestHandlesOfTokens(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		w.User("taken")
		for i, c := range []struct{ claimed, want, name, wantName string }{
			{"ada", "^ada$", "", "^ada$"},
			{"@Ada_2", "^ada_2$", strings.Repeat("ä", 60), "^ä{50}$"},
			{"taken", "^taken_[a-z2-7]{4}$", "Taken", "^Taken$"},
			{"TAKEN@secret.example.com", "^taken_[a-z2-7]{4}$", "\x00\u2028", "^\u2028$|^taken_"},
			{"a b--c", "^a_b_c$", "a\x00b", "^a b$"},
			{strings.Repeat("x", 40), "^x{30}$", "", "^x{30}$"},
			{strings.Repeat("x", 40), "^x{25}_[a-z2-7]{4}$", "", "^x{25}_"},
			{"安", "^user_[a-z0-9]+$", "安", "^安$"},
			{"", "^user_[a-z0-9]+$", "", "^user_"},
			{"@@", "^user_[a-z0-9]+$", " ", "^user_"},
		} {
			v := w.SignIn(feedtest.TokenOf(t, "app", fmt.Sprintf("someone-%d@secret.example.com", i), time.Now(),
				jwt.MapClaims{"preferred_username": c.claimed, "name": c.name}))
			u := w.Stores.DB.User.GetX(w.Ctx, v.ID)
			require.Regexp(t, c.want, u.Handle)
			require.Regexp(t, c.wantName, u.Name)
			handle, err := account.Handle(u.Handle)
			require.NoError(t, err)
			require.Equal(t, u.Handle, handle)
			require.NotContains(t, u.Handle+u.Name, "secret")
		}
	})
}

// An external id may be any text of up to 255 bytes, and no two are confused.
func TestExternalIDsAreAnyText(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		seen := map[int64]string{}
		for _, id := range []string{"a", "A", "a ", " a", "a\x00", "a\x00b", "ä", "a\u0308", "🐙", "'; DROP TABLE users; --", "%", strings.Repeat("x", 255), strings.Repeat("x", 254)} {
			token := feedtest.TokenOf(t, "open", id, time.Now(), nil)
			v := w.SignIn(token)
			require.Equal(t, v, w.SignIn(token))
			require.Empty(t, seen[v.ID], id)
			seen[v.ID] = id
			ids, err := w.Login.ExternalIDs(w.Ctx, v, []int64{v.ID})
			require.NoError(t, err)
			require.Equal(t, id, *ids[0])
			found, err := w.Login.UserByExternalID(w.Ctx, v, id)
			require.NoError(t, err)
			require.Equal(t, v.ID, *found)
		}
	})
}

// Only the user sees an external id, and, if the issuer allows it, the issuer's other users.
func TestWhoSeesExternalIDs(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		now := time.Now()
		ann, bob := w.SignIn(feedtest.TokenOf(t, "app", "ann", now, nil)), w.SignIn(feedtest.TokenOf(t, "app", "bob", now, nil))
		cat, dan := w.SignIn(feedtest.TokenOf(t, "open", "cat", now, nil)), w.SignIn(feedtest.TokenOf(t, "open", "dan", now, nil))
		own := w.User("own")
		ids := []int64{ann.ID, bob.ID, cat.ID, dan.ID, own.ID, 1}
		for viewer, want := range map[session.Viewer]string{
			ann: "ann - - - - -", bob: "- bob - - - -", cat: "- - cat dan - -", dan: "- - cat dan - -", own: "- - - - - -", {}: "- - - - - -",
		} {
			list, err := w.Login.ExternalIDs(w.Ctx, viewer, ids)
			require.NoError(t, err)
			var got []string
			for _, id := range list {
				if id == nil {
					got = append(got, "-")
				} else {
					got = append(got, *id)
				}
			}
			require.Equal(t, want, strings.Join(got, " "))
			var found []string
			for _, name := range []string{"ann", "bob", "cat", "dan"} {
				id, err := w.Login.UserByExternalID(w.Ctx, viewer, name)
				if err != nil {
					require.Equal(t, refusal.NotFound, refusal.CodeOf(err))
					continue
				}
				require.Contains(t, ids, *id)
				found = append(found, name)
			}
			require.Equal(t, strings.Join(strings.Fields(strings.ReplaceAll(want, "-", "")), " "), strings.Join(found, " "))
		}
	})
}

// A sign-out ends the sessions of a user and refuses every token issued before, at every process.
// A later token signs in again; an old one is still refused then.
func TestSignOutRefusesOlderTokens(t *testing.T) {
	at := time.Now().Truncate(time.Second)
	feedtest.EachWithIssuers(t, feedtest.Options{Now: func() time.Time { return at }}, func(t *testing.T, w *feedtest.World) {
		now := at
		defer func() { at = now }()
		old, noTime := feedtest.TokenOf(t, "app", "ann", now, nil), feedtest.TokenOf(t, "app", "ann", now, jwt.MapClaims{"iat": nil})
		never := feedtest.TokenOf(t, "app", "ann", now, jwt.MapClaims{"jti": "not seen before"})
		v := w.SignIn(old)
		require.Equal(t, v.Session, w.SignIn(noTime).Session)
		at = now.Add(time.Second + time.Millisecond)
		for name, signOut := range map[string]func() error{
			"log-out":  func() error { return w.Sessions.LogOut(w.Ctx, v) },
			"sign-out": func() error { _, err := w.Sessions.SignOut(w.Ctx, v.ID); return err },
		} {
			require.NoError(t, signOut(), name)
			ended, err := w.Sessions.Ended(w.Ctx, []session.Grant{v.Grant()})
			require.NoError(t, err)
			require.Equal(t, []session.Grant{{Session: v.Session}}, ended)
			for _, token := range []string{old, noTime, never, feedtest.TokenOf(t, "app", "ann", at, nil)} {
				w.RequireRefused(token)
			}
			require.Zero(t, w.Stores.DB.Session.Query().CountX(w.Ctx), "a refused token begins no session")
			at = at.Add(time.Second)
			again := w.SignIn(feedtest.TokenOf(t, "app", "ann", at, nil))
			require.Equal(t, v.ID, again.ID)
			require.NotEqual(t, v.Session, again.Session)
			w.RequireRefused(old)
			v = again
		}
		_, err := w.Sessions.SignOut(w.Ctx, 1)
		require.Equal(t, refusal.NotFound, refusal.CodeOf(err))
	})
}

// The session of an issuer's user lasts longer than every token used with it. Later tokens renew
// it about once a day.
func TestTokensRenewTheSession(t *testing.T) {
	at := time.Now()
	feedtest.EachWithIssuers(t, feedtest.Options{Now: func() time.Time { return at }}, func(t *testing.T, w *feedtest.World) {
		now := at
		defer func() { at = now }()
		v := w.SignIn(feedtest.TokenOf(t, "app", "ann", at, nil))
		began := w.Stores.DB.Session.GetX(w.Ctx, v.Session).ExpiresAt
		writes, last := 0, began
		for range 100 {
			at = at.Add(time.Hour)
			_, expires, err := w.Login.Authenticate(w.Ctx, feedtest.TokenOf(t, "app", "ann", at, nil))
			require.NoError(t, err)
			until := w.Stores.DB.Session.GetX(w.Ctx, v.Session).ExpiresAt
			require.False(t, until.Before(expires))
			if !until.Equal(last) {
				writes, last = writes+1, until
			}
		}
		require.LessOrEqual(t, writes, 5)
		far := feedtest.TokenOf(t, "app", "ann", at, jwt.MapClaims{"exp": int64(9e15)})
		_, expires, err := w.Login.Authenticate(w.Ctx, far)
		require.NoError(t, err)
		require.WithinDuration(t, at.Add(session.MaxTTL), expires, time.Second)
	})
}

// Sign-up and log-in that are turned off are refused, and so are sessions that they started
// before.
func TestOwnAccountsSwitchedOff(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		ann, err := w.Login.SignUp(w.Ctx, "ann", "correct horse", "")
		require.NoError(t, err)
		noSignUp := feedtest.New(t, w.Stores, feedtest.Options{NoSignUp: true})
		_, err = noSignUp.Login.SignUp(w.Ctx, "bob", "correct horse", "")
		require.Equal(t, refusal.Forbidden, refusal.CodeOf(err))
		_, err = noSignUp.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(t, err)
		noSignUp.SignIn(ann.Token)
		off := feedtest.New(t, w.Stores, feedtest.Options{NoPasswords: true, Issuers: newVerifierOfSecret(t)})
		_, err = off.Login.SignUp(w.Ctx, "bob", "correct horse", "")
		require.Equal(t, refusal.Forbidden, refusal.CodeOf(err))
		_, err = off.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.Equal(t, refusal.Forbidden, refusal.CodeOf(err))
		off.RequireRefused(ann.Token)
		off.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil))
	})
}

// A suspended user is refused with every token, including tokens issued later, at every process,
// until the suspension ends.
func TestSuspendedUserOfAnIssuer(t *testing.T) {
	at := time.Now()
	feedtest.EachWithIssuers(t, feedtest.Options{Now: func() time.Time { return at }}, func(t *testing.T, w *feedtest.World) {
		other := feedtest.New(t, w.Stores, feedtest.Options{Issuers: newVerifierOfSecret(t), Now: func() time.Time { return at }})
		token := feedtest.TokenOf(t, "app", "7", at, nil)
		v := w.SignIn(token)
		other.SignIn(token)
		at = at.Add(time.Second)
		_, err := w.Moderation.Suspend(w.Ctx, moderation.Console, v.ID, "", account.Suspension{})
		require.NoError(t, err)
		w.RequireRefused(token)
		at = at.Add(6 * time.Second)
		for _, process := range []*feedtest.World{w, other} {
			process.RequireRefused(token)
			process.RequireRefused(feedtest.TokenOf(t, "app", "7", at, nil))
		}
		_, err = w.Moderation.Unsuspend(w.Ctx, moderation.Console, v.ID, "")
		require.NoError(t, err)
		at = at.Add(time.Second)
		w.RequireRefused(token)
		require.Equal(t, v.ID, w.SignIn(feedtest.TokenOf(t, "app", "7", at, nil)).ID)
		at = time.Now()
	})
}

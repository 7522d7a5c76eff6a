package login_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	entsession "tideline/ent/session"
	"tideline/feed/account"
	"tideline/feed/bulk"
	"tideline/feed/feedtest"
	"tideline/feed/login"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
)

func viewerOf(w *feedtest.World, auth *login.Auth) session.Viewer {
	w.Helper()
	v, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
	require.NoError(w, err)
	return v
}

func requireReason(w *feedtest.World, reason refusal.Reason, err error) {
	w.Helper()
	var refused *refusal.Error
	require.ErrorAs(w, err, &refused)
	require.Equal(w, reason, refused.Reason)
}

func TestChangeHandle(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		post := w.Post(ann, "PUBLIC")
		for _, bad := range []string{"", "a b", strings.Repeat("a", account.MaxHandle+1)} {
			_, err := w.Accounts.ChangeHandle(w.Ctx, ann, bad)
			w.RequireCode(refusal.BadInput, err)
		}
		_, err := w.Accounts.ChangeHandle(w.Ctx, ann, "@BOB")
		w.RequireCode(refusal.Conflict, err)
		_, err = w.Accounts.ChangeHandle(w.Ctx, session.Viewer{}, "anna")
		w.RequireCode(refusal.Unauthenticated, err)

		u, err := w.Accounts.ChangeHandle(w.Ctx, ann, "@Anna")
		require.NoError(w, err)
		require.Equal(w, "anna", u.Handle)
		_, err = w.Directory.User(w.Ctx, "ann")
		w.RequireCode(refusal.NotFound, err)
		found, err := w.Directory.User(w.Ctx, "anna")
		require.NoError(w, err)
		require.Equal(w, ann.ID, found.ID)
		_, err = w.Accounts.ChangeHandle(w.Ctx, bob, "ann")
		require.NoError(w, err, "the former handle is free")
		shown, err := w.Feed.Post(w.Ctx, bob, post)
		require.NoError(w, err)
		require.Equal(w, ann.ID, shown.AuthorID)
	})
}

func TestChangePassword(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.SignUp("ann", "correct horse")
		other, err := w.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(w, err)

		_, err = w.Login.ChangePassword(w.Ctx, ann, "wrong horse", "battery staple")
		w.RequireCode(refusal.Forbidden, err)
		_, err = w.Login.ChangePassword(w.Ctx, ann, "correct horse", "short")
		w.RequireCode(refusal.BadInput, err)
		_, err = w.Login.ChangePassword(w.Ctx, session.Viewer{}, "correct horse", "battery staple")
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Login.ChangePassword(w.Ctx, w.User("imported"), "correct horse", "battery staple")
		w.RequireCode(refusal.Forbidden, err)

		ended, err := w.Login.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		require.NoError(w, err)
		require.Equal(w, 1, ended)
		_, _, err = w.Sessions.Authenticate(w.Ctx, other.Token)
		w.RequireCode(refusal.Unauthenticated, err)
		gone, err := w.Sessions.Ended(w.Ctx, []session.Grant{ann.Grant()})
		require.NoError(w, err)
		require.Empty(w, gone, "the present session stays")
		_, err = w.Login.LogIn(w.Ctx, "ann", "correct horse")
		w.RequireCode(refusal.Unauthenticated, err)
		_, err = w.Login.LogIn(w.Ctx, "ann", "battery staple")
		require.NoError(w, err)
	})
}

// A user that a token created has no password and cannot set one.
func TestUserOfAnIssuerHasNoPassword(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		v := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil))
		_, err := w.Login.ChangePassword(w.Ctx, v, account.NoPassword, "battery staple")
		w.RequireCode(refusal.Forbidden, err)
	})
}

// For an imported user with a password, the password confirms and can be changed as for any other
// user. A fresh token of the issuer confirms, too.
func TestImportedUserHasAPassword(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		hash := "$2b$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."
		results, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "7", Handle: new("ann"), PasswordHash: &hash}})
		require.NoError(t, err)
		require.Equal(t, bulk.Created, results[0].Status)
		auth, err := w.Login.LogIn(w.Ctx, "ann", "päss word")
		require.NoError(t, err)
		ann := viewerOf(w, auth)

		stale := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now().Add(-30*time.Minute), nil))
		undated := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), jwt.MapClaims{"iat": nil}))
		for _, v := range []session.Viewer{ann, stale, undated} {
			require.Equal(t, ann.ID, v.ID)
			_, _, err = w.Login.OfferExport(w.Ctx, v, "wrong horse")
			requireReason(w, refusal.WrongPassword, err)
			_, _, err = w.Login.OfferExport(w.Ctx, v, "päss word")
			require.NoError(t, err)
		}
		_, _, err = w.Login.OfferExport(w.Ctx, stale, "")
		requireReason(w, refusal.TokenNotFresh, err)
		_, _, err = w.Login.OfferExport(w.Ctx, w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil)), "")
		require.NoError(t, err)
		_, err = w.Login.ChangePassword(w.Ctx, ann, "wrong horse", "battery staple")
		requireReason(w, refusal.WrongPassword, err)
		_, err = w.Login.ChangePassword(w.Ctx, ann, "päss word", "battery staple")
		require.NoError(t, err)
		_, err = w.Login.DeleteAccount(w.Ctx, ann, "")
		requireReason(w, refusal.WrongPassword, err)
		_, err = w.Login.DeleteAccount(w.Ctx, ann, "battery staple")
		require.NoError(t, err)
	})
}

// A change of the password also refuses earlier tokens of the user's issuer. If it is made with such a
// token, they stay valid, since all share the session of the call.
func TestChangeOfPasswordRefusesOlderTokens(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		hash := "$2b$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."
		_, err := w.Bulk.Users(w.Ctx, "app", []bulk.User{{ExternalID: "7", Handle: new("ann"), PasswordHash: &hash}})
		require.NoError(t, err)
		used := feedtest.TokenOf(t, "app", "7", time.Now(), nil)
		unused := feedtest.TokenOf(t, "app", "7", time.Now(), jwt.MapClaims{"exp": time.Now().Add(72 * time.Hour).Unix()}) // renews the session
		auth, err := w.Login.LogIn(w.Ctx, "ann", "päss word")
		require.NoError(t, err)

		v := w.SignIn(used)
		ended, err := w.Login.ChangePassword(w.Ctx, v, "päss word", "battery staple")
		require.NoError(t, err)
		require.Equal(t, 1, ended)
		w.RequireRefused(auth.Token)
		require.Equal(t, v.Session, w.SignIn(unused).Session)

		auth, err = w.Login.LogIn(w.Ctx, "ann", "battery staple")
		require.NoError(t, err)
		ended, err = w.Login.ChangePassword(w.Ctx, viewerOf(w, auth), "battery staple", "correct horse")
		require.NoError(t, err)
		require.Equal(t, 1, ended)
		for _, token := range []string{used, unused} {
			_, _, err = w.Login.Authenticate(w.Ctx, token)
			requireReason(w, refusal.SessionEnded, err)
		}
		viewerOf(w, auth)
	})
}

// A token that does not say when it was issued confirms nothing.
func TestTokenWithoutItsTimeConfirmsNothing(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		v := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), jwt.MapClaims{"iat": nil}))
		_, _, err := w.Login.OfferExport(w.Ctx, v, "")
		requireReason(w, refusal.TokenWithoutIat, err)
		_, err = w.Login.DeleteAccount(w.Ctx, v, "")
		requireReason(w, refusal.TokenWithoutIat, err)
		_, err = w.Login.ChangePassword(w.Ctx, v, account.NoPassword, "battery staple")
		requireReason(w, refusal.NoPassword, err)
		_, err = w.Login.DeleteAccount(w.Ctx, w.User("nobody"), "")
		requireReason(w, refusal.NoPassword, err)
	})
}

// In any order of concurrent log-ins with the former password and its change, no session of those
// log-ins is open afterwards.
func TestNoLogInSurvivesAChangeOfPassword(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.SignUp("ann", "correct horse")
		tokens := make([]string, 6)
		var all sync.WaitGroup
		for i := range tokens {
			all.Go(func() {
				if auth, err := w.Login.LogIn(w.Ctx, "ann", "correct horse"); err == nil {
					tokens[i] = auth.Token
				}
			})
		}
		_, err := w.Login.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		all.Wait()
		require.NoError(w, err)
		for _, token := range tokens {
			if token != "" {
				w.RequireRefused(token)
			}
		}
	})
}

// A log-in whose password was verified before a change of the password starts no session.
func TestLogInOfAFormerHashStartsNoSession(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.SignUp("ann", "correct horse")
		before := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		_, err := w.Login.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		require.NoError(w, err)
		auth, err := w.Login.StartVerified(w.Ctx, before)
		require.NoError(w, err)
		require.Nil(w, auth)
	})
}

func TestSessionList(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.SignUp("ann", "correct horse"), w.User("bob")
		phone := session.WithUserAgent(w.Ctx, "Phone\x00 \u202e"+strings.Repeat("é", 2*session.MaxUserAgent))
		_, err := w.Login.LogIn(phone, "ann", "correct horse")
		require.NoError(w, err)
		expired, err := w.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(w, err)
		old := viewerOf(w, expired)
		w.Stores.DB.Session.UpdateOneID(old.Session).SetExpiresAt(time.Now().Add(-time.Hour).UTC()).ExecX(w.Ctx)

		one := 1
		list, err := w.Sessions.List(w.Ctx, ann, ann.ID, paging.Page{First: &one}, 100)
		require.NoError(w, err)
		require.True(w, list.HasNextPage)
		newest := list.Nodes()[0]
		require.False(w, newest.Current)
		require.Equal(w, "Phone "+strings.Repeat("é", session.MaxUserAgent-len("Phone ")), *newest.UserAgent)
		list, err = w.Sessions.List(w.Ctx, ann, ann.ID, paging.Page{First: &one, After: &list.Edges[0].Cursor}, 100)
		require.NoError(w, err)
		require.False(w, list.HasNextPage)
		present := list.Nodes()[0]
		require.True(w, present.Current)
		require.Nil(w, present.UserAgent)

		for _, stranger := range []session.Viewer{bob, {}} {
			list, err = w.Sessions.List(w.Ctx, stranger, ann.ID, paging.Page{}, 100)
			require.NoError(w, err)
			require.Nil(w, list)
		}
		w.RequireCode(refusal.NotFound, w.Sessions.End(w.Ctx, bob, newest.ID))
		w.RequireCode(refusal.BadInput, w.Sessions.End(w.Ctx, ann, "7"))
		require.NoError(w, w.Sessions.End(w.Ctx, ann, newest.ID))
		w.RequireCode(refusal.NotFound, w.Sessions.End(w.Ctx, ann, newest.ID))

		ended, err := w.Sessions.LogOutEverywhere(w.Ctx, ann)
		require.NoError(w, err)
		require.Equal(w, 2, ended, "the expired one is not purged yet")
		_, err = w.Sessions.LogOutEverywhere(w.Ctx, session.Viewer{})
		w.RequireCode(refusal.Unauthenticated, err)
	})
}

// manySessions is more than the number of values that any engine can bind in a statement.
const manySessions = 65_536

// fillSessions gives a user n more sessions.
func fillSessions(w *feedtest.World, v session.Viewer, n int) {
	w.Helper()
	hash := "CAST($2 || ' ' || n AS BLOB)"
	if w.Stores.Dialect == dialect.Postgres {
		hash = "convert_to(CAST(CAST($2 AS bigint) AS text) || ' ' || n, 'UTF8')"
	}
	_, err := w.Stores.SQL.ExecContext(w.Ctx, "INSERT INTO sessions (token_hash, user_id, created_at, expires_at, user_agent)"+
		" WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < CAST($1 AS bigint))"+
		" SELECT "+hash+", CAST($2 AS bigint), $3, $4, '' FROM numbers", n, v.ID, time.Now().UTC(), time.Now().Add(time.Hour).UTC())
	require.NoError(w, err)
}

// Operations that end the sessions of a user end all of them, for any number of sessions.
func TestSessionsEndHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := w.SignUp("ann", "correct horse")
		fillSessions(w, ann, manySessions)
		ended, err := w.Login.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		require.NoError(w, err)
		require.Equal(w, manySessions, ended)
		require.Equal(w, ann.Session, w.Stores.DB.Session.Query().OnlyIDX(w.Ctx))

		fillSessions(w, ann, 3)
		ended, err = w.Sessions.LogOutEverywhere(w.Ctx, ann)
		require.NoError(w, err)
		require.Equal(w, 4, ended)
	})
}

// A user has at most session.MaxPerUser sessions. A log-in, the path of an export or a token of an
// issuer ends the oldest, including sessions from before the limit existed.
func TestOldestSessionsEnd(t *testing.T) {
	feedtest.EachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		count := func(v session.Viewer) int {
			return w.Stores.DB.Session.Query().Where(entsession.UserID(v.ID)).CountX(w.Ctx)
		}
		ann := w.SignUp("ann", "correct horse")
		fillSessions(w, ann, session.MaxPerUser-1)
		gone := func() bool {
			ended, err := w.Sessions.Ended(w.Ctx, []session.Grant{ann.Grant()})
			require.NoError(t, err)
			return len(ended) > 0
		}
		require.False(t, gone())
		auth, err := w.Login.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(t, err)
		require.True(t, gone(), "the oldest ends")
		require.Equal(t, session.MaxPerUser, count(ann))
		_, _, err = w.Login.OfferExport(w.Ctx, viewerOf(w, auth), "correct horse")
		require.NoError(t, err)
		require.Equal(t, session.MaxPerUser, count(ann))

		bob := w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil))
		w.Stores.DB.Session.Delete().Where(entsession.UserID(bob.ID)).ExecX(w.Ctx)
		fillSessions(w, bob, session.MaxPerUser+20)
		w.SignIn(feedtest.TokenOf(t, "app", "7", time.Now(), nil))
		require.Equal(t, session.MaxPerUser, count(bob))
	})
}

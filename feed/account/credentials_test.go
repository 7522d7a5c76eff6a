package account_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/feedtest"
	"tideline/feed/paging"
	"tideline/feed/refusal"
)

func signUp(w *feedtest.World, handle, password string) account.Viewer {
	w.Helper()
	auth, err := w.Accounts.SignUp(w.Ctx, handle, password, "")
	require.NoError(w, err)
	return viewerOf(w, auth)
}

func viewerOf(w *feedtest.World, auth *account.Auth) account.Viewer {
	w.Helper()
	v, _, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
	require.NoError(w, err)
	return v
}

func requireCode(w *feedtest.World, code refusal.Code, err error) {
	w.Helper()
	require.Equal(w, code, refusal.CodeOf(err), "%v", err)
}

func TestChangeHandle(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := w.User("ann"), w.User("bob")
		post := w.Post(ann, "PUBLIC")
		for _, bad := range []string{"", "a b", strings.Repeat("a", account.MaxHandle+1)} {
			_, err := w.Accounts.ChangeHandle(w.Ctx, ann, bad)
			requireCode(w, refusal.BadInput, err)
		}
		_, err := w.Accounts.ChangeHandle(w.Ctx, ann, "@BOB")
		requireCode(w, refusal.Conflict, err)
		_, err = w.Accounts.ChangeHandle(w.Ctx, account.Viewer{}, "anna")
		requireCode(w, refusal.Unauthenticated, err)

		u, err := w.Accounts.ChangeHandle(w.Ctx, ann, "@Anna")
		require.NoError(w, err)
		require.Equal(w, "anna", u.Handle)
		_, err = w.Directory.User(w.Ctx, "ann")
		requireCode(w, refusal.NotFound, err)
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
		ann := signUp(w, "ann", "correct horse")
		other, err := w.Accounts.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(w, err)

		_, err = w.Accounts.ChangePassword(w.Ctx, ann, "wrong horse", "battery staple")
		requireCode(w, refusal.Forbidden, err)
		_, err = w.Accounts.ChangePassword(w.Ctx, ann, "correct horse", "short")
		requireCode(w, refusal.BadInput, err)
		_, err = w.Accounts.ChangePassword(w.Ctx, account.Viewer{}, "correct horse", "battery staple")
		requireCode(w, refusal.Unauthenticated, err)
		_, err = w.Accounts.ChangePassword(w.Ctx, w.User("imported"), "correct horse", "battery staple")
		requireCode(w, refusal.Forbidden, err)

		ended, err := w.Accounts.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		require.NoError(w, err)
		require.Equal(w, 1, ended)
		_, _, err = w.Sessions.Authenticate(w.Ctx, other.Token)
		requireCode(w, refusal.Unauthenticated, err)
		gone, err := w.Sessions.Ended(w.Ctx, []account.Grant{ann.Grant()})
		require.NoError(w, err)
		require.Empty(w, gone, "the present session stays")
		_, err = w.Accounts.LogIn(w.Ctx, "ann", "correct horse")
		requireCode(w, refusal.Unauthenticated, err)
		_, err = w.Accounts.LogIn(w.Ctx, "ann", "battery staple")
		require.NoError(w, err)
	})
}

// A user of an issuer has no password, and none gets one.
func TestUserOfAnIssuerHasNoPassword(t *testing.T) {
	eachWithIssuers(t, feedtest.Options{}, func(t *testing.T, w *feedtest.World) {
		v := signIn(w, tokenOf(t, "app", "7", time.Now(), nil))
		_, err := w.Accounts.ChangePassword(w.Ctx, v, account.NoPassword, "battery staple")
		requireCode(w, refusal.Forbidden, err)
	})
}

// Whatever the order in which log-ins with the former password and its change come to
// their ends, none of these sessions is open afterwards.
func TestNoLogInSurvivesAChangeOfPassword(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := signUp(w, "ann", "correct horse")
		tokens := make([]string, 6)
		var all sync.WaitGroup
		for i := range tokens {
			all.Go(func() {
				if auth, err := w.Accounts.LogIn(w.Ctx, "ann", "correct horse"); err == nil {
					tokens[i] = auth.Token
				}
			})
		}
		_, err := w.Accounts.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		all.Wait()
		require.NoError(w, err)
		for _, token := range tokens {
			if token != "" {
				requireRefused(w, token)
			}
		}
	})
}

// A log-in whose password was verified before a change of the password starts no session.
func TestLogInOfAFormerHashStartsNoSession(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann := signUp(w, "ann", "correct horse")
		before := w.Stores.DB.User.GetX(w.Ctx, ann.ID)
		_, err := w.Accounts.ChangePassword(w.Ctx, ann, "correct horse", "battery staple")
		require.NoError(w, err)
		auth, err := w.Accounts.StartVerified(w.Ctx, before)
		require.NoError(w, err)
		require.Nil(w, auth)
	})
}

func TestSessionList(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		ann, bob := signUp(w, "ann", "correct horse"), w.User("bob")
		phone := account.WithUserAgent(w.Ctx, "Phone\x00 \u202e"+strings.Repeat("é", 2*account.MaxUserAgent))
		_, err := w.Accounts.LogIn(phone, "ann", "correct horse")
		require.NoError(w, err)
		expired, err := w.Accounts.LogIn(w.Ctx, "ann", "correct horse")
		require.NoError(w, err)
		old := viewerOf(w, expired)
		w.Stores.DB.Session.UpdateOneID(old.Session).SetExpiresAt(time.Now().Add(-time.Hour).UTC()).ExecX(w.Ctx)

		one := 1
		list, err := w.Sessions.List(w.Ctx, ann, ann.ID, paging.Page{First: &one}, 100)
		require.NoError(w, err)
		require.True(w, list.HasNextPage)
		newest := list.Nodes()[0]
		require.False(w, newest.Current)
		require.Equal(w, "Phone "+strings.Repeat("é", account.MaxUserAgent-len("Phone ")), *newest.UserAgent)
		list, err = w.Sessions.List(w.Ctx, ann, ann.ID, paging.Page{First: &one, After: &list.Edges[0].Cursor}, 100)
		require.NoError(w, err)
		require.False(w, list.HasNextPage)
		present := list.Nodes()[0]
		require.True(w, present.Current)
		require.Nil(w, present.UserAgent)

		for _, stranger := range []account.Viewer{bob, {}} {
			list, err = w.Sessions.List(w.Ctx, stranger, ann.ID, paging.Page{}, 100)
			require.NoError(w, err)
			require.Nil(w, list)
		}
		requireCode(w, refusal.NotFound, w.Sessions.End(w.Ctx, bob, newest.ID))
		requireCode(w, refusal.BadInput, w.Sessions.End(w.Ctx, ann, "7"))
		require.NoError(w, w.Sessions.End(w.Ctx, ann, newest.ID))
		requireCode(w, refusal.NotFound, w.Sessions.End(w.Ctx, ann, newest.ID))

		ended, err := w.Sessions.LogOutEverywhere(w.Ctx, ann)
		require.NoError(w, err)
		require.Equal(w, 2, ended, "the expired one is not purged yet")
		_, err = w.Sessions.LogOutEverywhere(w.Ctx, account.Viewer{})
		requireCode(w, refusal.Unauthenticated, err)
	})
}

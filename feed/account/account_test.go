package account_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		auth, err := w.Accounts.SignUp(w.Ctx, "@Ann_1", "correct horse", "安 Ann 🐙")
		require.NoError(w, err)
		require.Equal(w, "ann_1", auth.User.Handle)
		_, err = w.Accounts.SignUp(w.Ctx, "ANN_1", "another one", "")
		require.Equal(w, refusal.Conflict, refusal.CodeOf(err))

		v, expires, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
		require.NoError(w, err)
		require.Equal(w, auth.User.ID, v.ID)
		require.WithinDuration(w, auth.ExpiresAt, expires, 0)

		_, err = w.Accounts.LogIn(w.Ctx, "ann_1", "wrong horse")
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err))
		_, unknown := w.Accounts.LogIn(w.Ctx, "nobody", "wrong horse")
		require.Equal(w, err.Error(), unknown.Error(), "no way to find out which handles exist")
		second, err := w.Accounts.LogIn(w.Ctx, "Ann_1", "correct horse")
		require.NoError(w, err)

		require.NoError(w, w.Sessions.LogOut(w.Ctx, v))
		_, _, err = w.Sessions.Authenticate(w.Ctx, auth.Token)
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err))
		_, _, err = w.Sessions.Authenticate(w.Ctx, second.Token)
		require.NoError(w, err, "the other session goes on")

		stored, err := w.Stores.DB.User.Query().Where(user.Handle("ann_1")).Only(w.Ctx)
		require.NoError(w, err)
		require.True(w, strings.HasPrefix(stored.PasswordHash, "$argon2id$"))
		sessions, err := w.Stores.DB.Session.Query().All(w.Ctx)
		require.NoError(w, err)
		for _, s := range sessions {
			require.NotContains(w, string(s.TokenHash), second.Token)
		}
	})
}

func TestAccountsRefuse(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		for _, bad := range []struct{ handle, password, name string }{
			{"", "long enough", ""}, {"has space", "long enough", ""}, {"é", "long enough", ""},
			{strings.Repeat("a", 31), "long enough", ""}, {"short_password", "1234567", ""},
			{"long_name", "long enough", strings.Repeat("n", 51)}, {"two_lines", "long enough", "a\nb"},
			{"control", "long enough", "a\x01b"},
		} {
			_, err := w.Accounts.SignUp(w.Ctx, bad.handle, bad.password, bad.name)
			require.Equal(w, refusal.BadInput, refusal.CodeOf(err), "%q: %v", bad, err)
		}
		require.Zero(w, w.Stores.DB.User.Query().CountX(w.Ctx))
	})
}

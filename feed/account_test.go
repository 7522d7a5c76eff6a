package feed_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/user"
	"tideline/feed"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		auth, err := w.feed.SignUp(w.ctx, "@Ann_1", "correct horse", "安 Ann 🐙")
		require.NoError(w.t, err)
		require.Equal(w.t, "ann_1", auth.User.Handle)
		_, err = w.feed.SignUp(w.ctx, "ANN_1", "another one", "")
		require.Equal(w.t, feed.Conflict, feed.CodeOf(err))

		v, expires, err := w.feed.Authenticate(w.ctx, auth.Token)
		require.NoError(w.t, err)
		require.Equal(w.t, auth.User.ID, v.ID)
		require.WithinDuration(w.t, auth.ExpiresAt, expires, 0)

		_, err = w.feed.LogIn(w.ctx, "ann_1", "wrong horse")
		require.Equal(w.t, feed.Unauthenticated, feed.CodeOf(err))
		_, unknown := w.feed.LogIn(w.ctx, "nobody", "wrong horse")
		require.Equal(w.t, err.Error(), unknown.Error(), "no way to find out which handles exist")
		second, err := w.feed.LogIn(w.ctx, "Ann_1", "correct horse")
		require.NoError(w.t, err)

		require.NoError(w.t, w.feed.LogOut(w.ctx, v))
		_, _, err = w.feed.Authenticate(w.ctx, auth.Token)
		require.Equal(w.t, feed.Unauthenticated, feed.CodeOf(err))
		_, _, err = w.feed.Authenticate(w.ctx, second.Token)
		require.NoError(w.t, err, "the other session goes on")

		stored, err := w.s.DB.User.Query().Where(user.Handle("ann_1")).Only(w.ctx)
		require.NoError(w.t, err)
		require.True(w.t, strings.HasPrefix(stored.PasswordHash, "$argon2id$"))
		sessions, err := w.s.DB.Session.Query().All(w.ctx)
		require.NoError(w.t, err)
		for _, s := range sessions {
			require.NotContains(w.t, string(s.TokenHash), second.Token)
		}
	})
}

func TestAccountsRefuse(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		for _, bad := range []struct{ handle, password, name string }{
			{"", "long enough", ""}, {"has space", "long enough", ""}, {"é", "long enough", ""},
			{strings.Repeat("a", 31), "long enough", ""}, {"short_password", "1234567", ""},
			{"long_name", "long enough", strings.Repeat("n", 51)}, {"two_lines", "long enough", "a\nb"},
			{"control", "long enough", "a\x01b"},
		} {
			_, err := w.feed.SignUp(w.ctx, bad.handle, bad.password, bad.name)
			require.Equal(w.t, feed.BadInput, feed.CodeOf(err), "%q: %v", bad, err)
		}
		require.Zero(w.t, w.s.DB.User.Query().CountX(w.ctx))
	})
}

package login_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"

	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/refusal"
)

func TestAccounts(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		auth, err := w.Login.SignUp(w.Ctx, "@Ann_1", "correct horse", "安 Ann 🐙")
		require.NoError(w, err)
		require.Equal(w, "ann_1", auth.User.Handle)
		_, err = w.Login.SignUp(w.Ctx, "ANN_1", "another one", "")
		require.Equal(w, refusal.Conflict, refusal.CodeOf(err))

		v, expires, err := w.Sessions.Authenticate(w.Ctx, auth.Token)
		require.NoError(w, err)
		require.Equal(w, auth.User.ID, v.ID)
		require.WithinDuration(w, auth.ExpiresAt, expires, 0)

		_, err = w.Login.LogIn(w.Ctx, "ann_1", "wrong horse")
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err))
		_, unknown := w.Login.LogIn(w.Ctx, "nobody", "wrong horse")
		require.Equal(w, err.Error(), unknown.Error(), "no way to find out which handles exist")
		second, err := w.Login.LogIn(w.Ctx, "Ann_1", "correct horse")
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
			_, err := w.Login.SignUp(w.Ctx, bad.handle, bad.password, bad.name)
			require.Equal(w, refusal.BadInput, refusal.CodeOf(err), "%q: %v", bad, err)
		}
		require.Zero(w, w.Stores.DB.User.Query().CountX(w.Ctx))
	})
}

// A password matches a hash with other parameters than new hashes, and a log-in renews the hash.
// No password matches an account without a usable hash.
func TestPasswordHashesAreRenewed(t *testing.T) {
	t.Parallel()
	feedtest.Each(t, func(w *feedtest.World) {
		stored := func() string {
			return w.Stores.DB.User.Query().Where(user.Handle("ann")).OnlyX(w.Ctx).PasswordHash
		}
		logIn := func(password string) error {
			_, err := w.Login.LogIn(w.Ctx, "ann", password)
			return err
		}
		salt, inText := []byte("saltsalt"), base64.RawStdEncoding.EncodeToString
		cheap := "$argon2id$v=19$m=1024,t=1,p=2$" + inText(salt) + "$" + inText(argon2.IDKey([]byte("correct horse"), salt, 1, 1024, 2, 16))
		ann := w.User("ann")
		set := w.Stores.DB.User.UpdateOneID(ann.ID)
		require.NoError(w, set.SetPasswordHash(cheap).Exec(w.Ctx))
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(logIn("wrong horse")))
		require.Equal(w, cheap, stored(), "a wrong password renews nothing")
		require.NoError(w, logIn("correct horse"))
		renewed := stored()
		require.Contains(w, renewed, "$m=19456,t=2,p=1$")
		require.NoError(w, logIn("correct horse"))
		require.Equal(w, renewed, stored(), "today's cost is kept")
		require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(logIn("wrong horse")))

		for _, unusable := range []string{"-", "", "$argon2i$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5", "$2a$10$foreign"} {
			require.NoError(w, w.Stores.DB.User.UpdateOneID(ann.ID).SetPasswordHash(unusable).Exec(w.Ctx))
			require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(logIn("correct horse")), unusable)
			require.Equal(w, unusable, stored())
		}
	})
}

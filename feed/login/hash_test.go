package login_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/user"
	"tideline/feed/feedtest"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/storage/storagetest"
)

// foreignHashes come from other implementations: the reference tests of Argon2, passlib's
// documentation, Python's hashlib with OpenSSL, and crypt of the C library.
var foreignHashes = map[string]struct{ password, hash string }{
	"argon2i":            {"password", "$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA"},
	"argon2id":           {"password", "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"},
	"scrypt of passlib":  {"password", "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4CbdRSCdEBsjjJxD+iCs5E"},
	"scrypt":             {"päss word", "$scrypt$ln=10,r=8,p=2$MDEyMzQ1Njc4OWFiY2RlZg$jzR8OBDPyx5n85wPdyFD8Gyr9CMjBNZEDiXYMUcC9nY"},
	"pbkdf2":             {"päss word", "$pbkdf2$1000$MDEyMzQ1Njc4OWFiY2RlZg$d3vOWvpO68mMgheM3zcY3mg4e8k"},
	"pbkdf2 of passlib":  {"password", "$pbkdf2-sha256$6400$.6UI/S.nXIk8jcbdHx3Fhg$98jZicV16ODfEsEZeYPGHU3kbrUrvUEXOPimVSQDD44"},
	"pbkdf2-sha256":      {"päss word", "$pbkdf2-sha256$i=1000,l=32$MDEyMzQ1Njc4OWFiY2RlZg$t8L2YUiEdwn9Fog2p4O5YP2tnJrqFAhteqdAvUj9zOA"},
	"pbkdf2-sha512":      {"päss word", "$pbkdf2-sha512$1000$MDEyMzQ1Njc4OWFiY2RlZg$KOCO/21UWEDSBOvxUdfKEkgS96SW7Vi0S2wNZHjbIsBQ7Fyki4Gnpu6pq3rRaqaQ.kQrEZ4S7tMa0OkQ0obAQQ"},
	"bcrypt 2a":          {"päss word", "$2a$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."},
	"bcrypt 2b":          {"päss word", "$2b$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."},
	"bcrypt 2y":          {"päss word", "$2y$04$abcdefghijklmnopqrstuuKRze7BjvIHM2j/Mlifwl1ZipE2V9mZ."},
	"bcrypt of 72 bytes": {strings.Repeat("x", 100), "$2b$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i"},
}

// A password matches the hash that another system made of it, and the log-in renews the hash.
// Another password does not match.
func TestHashesOfOtherSystems(t *testing.T) {
	t.Parallel()
	w := feedtest.Idle(t, storagetest.Embedded(t), feedtest.Options{})
	ann := w.User("ann")
	stored := func() string {
		return w.Stores.DB.User.Query().Where(user.ID(ann.ID)).OnlyX(w.Ctx).PasswordHash
	}
	for name, foreign := range foreignHashes {
		require.NoError(t, password.CheckHash(foreign.hash), name)
		require.NoError(t, w.Stores.DB.User.UpdateOneID(ann.ID).SetPasswordHash(foreign.hash).Exec(w.Ctx))
		_, err := w.Login.LogIn(w.Ctx, "ann", "Password")
		require.Equal(t, refusal.Unauthenticated, refusal.CodeOf(err), name)
		require.Equal(t, foreign.hash, stored(), name)
		_, err = w.Login.LogIn(w.Ctx, "ann", foreign.password)
		require.NoError(t, err, name)
		require.Contains(t, stored(), "$argon2id$v=19$m=19456,t=2,p=1$", name)
		_, err = w.Login.LogIn(w.Ctx, "ann", foreign.password)
		require.NoError(t, err, name)
	}
}

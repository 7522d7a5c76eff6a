package feedtest

import (
	"maps"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/feed/identity"
	"tideline/feed/session"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// appSecret is the secret of both issuers, app and open. The ids of the users of open are public.
const appSecret = "a secret of the app, 32 bytes or more"

func newIssuers(t *testing.T, now func() time.Time) *identity.Verifier {
	t.Setenv("APP_SECRET", appSecret)
	issuers, err := identity.Read(`[
		{"issuer": "app", "audience": "tideline", "secret_env": "APP_SECRET"},
		{"issuer": "open", "audience": "tideline", "secret_env": "APP_SECRET", "public_ids": true}]`)
	require.NoError(t, err)
	return identity.New(identity.Config{Issuers: issuers, Now: now})
}

// TokenOf returns a token of the issuer app or open. Claims in change replace the usual ones; a
// claim that is nil is left out.
func TokenOf(t testing.TB, issuer, id string, issued time.Time, change jwt.MapClaims) string {
	c := jwt.MapClaims{"iss": issuer, "aud": "tideline", "sub": id, "iat": issued.Unix(), "exp": issued.Add(time.Hour).Unix()}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString([]byte(appSecret))
	require.NoError(t, err)
	return token
}

// EachWithIssuers runs a test on every engine, in a World that accepts tokens of issuers.
func EachWithIssuers(t *testing.T, o Options, test func(t *testing.T, w *World)) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Issuers = newIssuers(t, o.Now)
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) { test(t, New(t, s, o)) })
}

// SignIn returns the viewer of a token of an issuer.
func (w *World) SignIn(token string) session.Viewer {
	w.Helper()
	v, _, err := w.Login.Authenticate(w.Ctx, token)
	require.NoError(w, err)
	require.NotZero(w, v.ID)
	require.NotZero(w, v.Session)
	return v
}

package identity_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/feed/identity"
)

func TestSharedSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	old, next := strings.Repeat("o", 32), strings.Repeat("n", 40)
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(old + "\n")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, `[{"issuer": "app", "audience": "tideline", "secret_file": "`+file+`", "skew": "0s",
			"claims": {"id": "uid", "handle": "nick"}, "public_ids": true}]`, nil)
		token := func(secret string, change jwt.MapClaims) string {
			c := claims(jwt.MapClaims{"iss": "app", "uid": "7", "nick": "ada"})
			maps.Copy(c, change)
			return sign(t, jwt.SigningMethodHS256, []byte(secret), nil, c)
		}
		c := w.takes(token(old, nil))
		require.Equal(t, "7", c.ExternalID)
		require.Equal(t, "ada", c.Handle)
		require.True(t, w.PublicIDs("app"))
		require.False(t, w.PublicIDs("another"))
		w.refuses(token(next, nil))
		w.refuses(token("", nil))
		w.refuses(sign(t, jwt.SigningMethodRS256, rsaKeys()[0], nil, claims(jwt.MapClaims{"iss": "app", "uid": "7"})))
		w.refuses(sign(t, jwt.SigningMethodHS512, []byte(old), nil, claims(jwt.MapClaims{"iss": "app", "uid": "7"})))
		write(next + "\n" + old + "\n")
		time.Sleep(time.Minute)
		w.takes(token(old, nil))
		w.takes(token(next, nil))
		write(next)
		time.Sleep(time.Minute)
		w.refuses(token(old, nil))
		write("short")
		time.Sleep(time.Minute)
		w.takes(token(next, nil))
		require.ErrorIs(t, w.Ready(w.ctx), identity.ErrOldKeys)
		require.NotContains(t, w.Ready(w.ctx).Error(), "short")
		require.Zero(t, w.publisher.requests.Load())
	})
}

func TestSettingsAreChecked(t *testing.T) {
	t.Setenv("APP_SECRET", strings.Repeat("s", 40))
	t.Setenv("SHORT_SECRET", "do-not-print")
	const head = `"issuer": "https://a.example", "audience": "t", `
	for setting, want := range map[string]string{
		`{}`: "",
		`[{` + head + `"jwks": "https://a.example/k", "algorithms": ["none"]}]`: `algorithms has "none"`,
		`[{` + head + `"jwks": "https://a.example/k", "algorithms": "HS256"}]`:  `algorithms has "HS256"`,
		`[{` + head + `"secret_env": "APP_SECRET", "algorithms": "RS256"}]`:     "with a secret it must be HS256, HS384 or HS512",
		`[{` + head + `"secret_env": "APP_SECRET", "algorithms": "HS512"}]`:     "needs at least 64",
		`[{` + head + `"secret_env": "SHORT_SECRET"}]`:                          "needs at least 32",
		`[{` + head + `"secret_env": "NO_SUCH_SECRET"}]`:                        "has 0 secrets",
		`[{` + head + `"secret_file": "/no/such/file"}]`:                        "no such file",
		`[{` + head + `"jwks": "https://a.example/k", "discovery": true}]`:      "exactly one of",
		`[{` + head + `"skew": "1s"}]`:                                          "exactly one of",
		`[{` + head + `"jwks": "file:///etc/passwd"}]`:                          "http or https",
		`[{` + head + `"discovery": true, "skew": "6m"}]`:                       "skew must be",
		`[{` + head + `"discovery": true, "skew": "soon"}]`:                     "invalid duration",
		`[{` + head + `"discovery": true, "algorithm": "RS256"}]`:               "unknown field",
		`[{` + head + `"discovery": true}, {` + head + `"discovery": true}]`:    "twice",
		`[{"issuer": "app", "audience": "t", "discovery": true}]`:               "discovery needs",
		`[{"issuer": "https://a.example", "discovery": true}]`:                  "audience",
		`[{"audience": "t", "jwks": "https://a.example/k"}]`:                    "issuer must be",
		`[{` + head + `"discovery": true}] x`:                                   "nothing after it",
		"/no/such/file":                                                         "a file that has one",
	} {
		_, err := identity.Read(setting)
		require.ErrorContains(t, err, want, setting)
		require.NotContains(t, err.Error(), "do-not-print")
	}
	issuers, err := identity.Read(`[{` + head + `"secret_env": "APP_SECRET"}]`)
	require.NoError(t, err)
	require.Equal(t, identity.Texts{"HS256"}, issuers[0].Algorithms)
	file := filepath.Join(t.TempDir(), "issuers.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{`+head+`"discovery": true, "algorithms": ["ES256", "PS256"]}]`), 0o600))
	_, err = identity.Read(file)
	require.NoError(t, err)
}

func BenchmarkVerify(b *testing.B) {
	issuers, err := identity.Read(asymmetric)
	require.NoError(b, err)
	set := keySet(&testing.T{}, map[string]any{"first": rsaKeys()[0].Public()})
	p := &publisher{}
	p.set(says(200, set))
	v := identity.New(identity.Config{Issuers: issuers, Transport: p})
	go func() { _ = v.Run(b.Context()) }()
	token := func() string {
		return sign(&testing.T{}, jwt.SigningMethodRS256, rsaKeys()[0], map[string]any{"kid": "first"}, claims(nil))
	}
	known := token()
	require.Eventually(b, func() bool { _, err := v.Verify(b.Context(), known); return err == nil }, time.Minute, time.Millisecond)
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			_, err = v.Verify(b.Context(), known)
		}
	})
	b.Run("bad signature", func(b *testing.B) {
		bad := known[:len(known)-8] + "AAAAAAAA"
		for b.Loop() {
			_, err = v.Verify(b.Context(), bad)
		}
	})
}

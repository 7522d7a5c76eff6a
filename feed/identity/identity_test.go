package identity_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"tideline/feed/identity"
	"tideline/feed/refusal"
)

const (
	issuerName = "https://login.example.com"
	audience   = "tideline"
)

// rsaKeys are generated once, because that takes long.
var rsaKeys = sync.OnceValue(func() []*rsa.PrivateKey {
	keys := make([]*rsa.PrivateKey, 3)
	for i := range keys {
		keys[i], _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	return keys
})

// publisher serves the issuer's keys. Its responses may change at any time.
type publisher struct {
	mu       sync.Mutex
	answer   func(r *http.Request) (status int, body io.Reader)
	requests atomic.Int64
	hangs    bool
}

func (p *publisher) RoundTrip(r *http.Request) (*http.Response, error) {
	p.requests.Add(1)
	p.mu.Lock()
	hangs, answer := p.hangs, p.answer
	p.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	status, body := answer(r)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
}

func (p *publisher) set(change func(p *publisher)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// says answers every request with the body.
func says(status int, body string) func(*publisher) {
	return func(p *publisher) {
		p.hangs = false
		p.answer = func(*http.Request) (int, io.Reader) { return status, strings.NewReader(body) }
	}
}

func keySet(t *testing.T, keys map[string]any) string {
	var set jose.JSONWebKeySet
	for id, key := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"})
	}
	data, err := json.Marshal(set)
	require.NoError(t, err)
	return string(data)
}

// world is a Verifier of one issuer.
type world struct {
	*testing.T
	*identity.Verifier
	publisher *publisher
	ctx       context.Context
	log       bytes.Buffer // at level info
}

func newWorld(t *testing.T, setting string, first func(*publisher)) *world {
	issuers, err := identity.Read(setting)
	require.NoError(t, err)
	w := &world{T: t, publisher: &publisher{}}
	if first != nil {
		w.publisher.set(first)
	}
	w.Verifier = identity.New(identity.Config{
		Issuers: issuers, Transport: w.publisher, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Verifier.Run(w.ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

const asymmetric = `[{"issuer": "` + issuerName + `", "audience": "` + audience + `", "jwks": "https://login.example.com/jwks",
	"algorithms": ["RS256", "ES256", "EdDSA"]}]`

// newRSA returns a world whose issuer has the first RSA key.
func newRSA(t *testing.T) *world {
	w := newWorld(t, asymmetric, says(200, keySet(t, map[string]any{"first": rsaKeys()[0].Public()})))
	synctest.Wait()
	return w
}

// claims returns valid claims with the given changes.
func claims(change jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": issuerName, "aud": audience, "sub": "user-1", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
	}
	for name, value := range change {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func sign(t *testing.T, method jwt.SigningMethod, key any, header map[string]any, c jwt.MapClaims) string {
	token := jwt.NewWithClaims(method, c)
	maps.Copy(token.Header, header)
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func (w *world) signed(kid any, key *rsa.PrivateKey, change jwt.MapClaims) string {
	return sign(w.T, jwt.SigningMethodRS256, key, map[string]any{"kid": kid}, claims(change))
}

func (w *world) refuses(token string, msg ...any) {
	w.Helper()
	_, err := w.Verify(w.ctx, token)
	require.Equal(w, refusal.Unauthenticated, refusal.CodeOf(err), msg...)
}

func (w *world) takes(token string) identity.Claims {
	w.Helper()
	c, err := w.Verify(w.ctx, token)
	require.NoError(w, err)
	return c
}

func TestClaimsOfAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		c := w.takes(w.signed("first", rsaKeys()[0], jwt.MapClaims{"preferred_username": "Ada", "name": "Ada L.", "aud": []string{"other", audience}}))
		require.Equal(t, identity.Claims{
			Issuer: issuerName, ExternalID: "user-1", Handle: "Ada", Name: "Ada L.",
			Issued: time.Unix(time.Now().Unix(), 0), Expires: time.Unix(time.Now().Unix(), 0).Add(time.Hour + time.Minute),
		}, c)
		require.Equal(t, "42", w.takes(w.signed("first", rsaKeys()[0], jwt.MapClaims{"sub": 42})).ExternalID)
		for _, id := range []string{"a", strings.Repeat("ä", 127) + "x", "a\x00b", " ", "🐙"} {
			require.Equal(t, id, w.takes(w.signed("first", rsaKeys()[0], jwt.MapClaims{"sub": id})).ExternalID)
		}
		require.Zero(t, w.takes(w.signed("first", rsaKeys()[0], jwt.MapClaims{"iat": nil, "name": 7})).Issued)
		require.EqualValues(t, 1, w.publisher.requests.Load())
	})
}

// No hostile token is accepted. Only tokens with an unknown key cause a request to the issuer.
func TestHostileTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		good, other := rsaKeys()[0], rsaKeys()[1]
		now := time.Now()
		public, err := json.Marshal(jose.JSONWebKey{Key: good.Public()})
		require.NoError(t, err)
		_, edwards, err := ed25519.GenerateKey(rand.Reader)
		require.NoError(t, err)
		curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		plain := w.signed("first", good, nil)
		parts := strings.Split(plain, ".")
		segment := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		first := map[string]any{"kid": "first"}
		for name, token := range map[string]string{
			"alg none":               sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, first, claims(nil)),
			"alg None":               segment(`{"alg":"None","kid":"first"}`) + "." + parts[1] + ".",
			"no alg":                 segment(`{"kid":"first"}`) + "." + parts[1] + "." + parts[2],
			"no signature":           parts[0] + "." + parts[1] + ".",
			"changed claims":         parts[0] + "." + segment(`{"iss":"`+issuerName+`","aud":"tideline","sub":"user-2","exp":9999999999}`) + "." + parts[2],
			"HS256 with the modulus": sign(t, jwt.SigningMethodHS256, good.N.Bytes(), first, claims(nil)),
			"HS256 with the JWK":     sign(t, jwt.SigningMethodHS256, public, first, claims(nil)),
			"RS512, not configured":  sign(t, jwt.SigningMethodRS512, good, first, claims(nil)),
			"ES256 with an RSA kid":  sign(t, jwt.SigningMethodES256, curve, first, claims(nil)),
			"EdDSA with an RSA kid":  sign(t, jwt.SigningMethodEdDSA, edwards, first, claims(nil)),
			"another key":            w.signed("first", other, nil),
			"key in the header":      sign(t, jwt.SigningMethodRS256, other, map[string]any{"kid": "first", "jwk": json.RawMessage(public)}, claims(nil)),
			"critical extension":     sign(t, jwt.SigningMethodRS256, good, map[string]any{"kid": "first", "crit": []string{"b64"}, "b64": false}, claims(nil)),
			"another issuer":         w.signed("first", good, jwt.MapClaims{"iss": "https://evil.example.com"}),
			"issuer with a slash":    w.signed("first", good, jwt.MapClaims{"iss": issuerName + "/"}),
			"no issuer":              w.signed("first", good, jwt.MapClaims{"iss": nil}),
			"issuer that is a list":  w.signed("first", good, jwt.MapClaims{"iss": []string{issuerName}}),
			"another audience":       w.signed("first", good, jwt.MapClaims{"aud": "elsewhere"}),
			"no audience":            w.signed("first", good, jwt.MapClaims{"aud": nil}),
			"expired":                w.signed("first", good, jwt.MapClaims{"exp": now.Add(-2 * time.Minute).Unix()}),
			"no end":                 w.signed("first", good, jwt.MapClaims{"exp": nil}),
			"end that is a text":     w.signed("first", good, jwt.MapClaims{"exp": "tomorrow"}),
			"not yet valid":          w.signed("first", good, jwt.MapClaims{"nbf": now.Add(2 * time.Minute).Unix()}),
			"issued in the future":   w.signed("first", good, jwt.MapClaims{"iat": now.Add(2 * time.Minute).Unix()}),
			"no sub":                 w.signed("first", good, jwt.MapClaims{"sub": nil}),
			"empty sub":              w.signed("first", good, jwt.MapClaims{"sub": ""}),
			"sub of 256 bytes":       w.signed("first", good, jwt.MapClaims{"sub": strings.Repeat("a", 256)}),
			"sub that is a list":     w.signed("first", good, jwt.MapClaims{"sub": []string{"user-1"}}),
			"sub that is a fraction": w.signed("first", good, jwt.MapClaims{"sub": 1.5}),
			"sub of half a pair":     sign(t, jwt.SigningMethodRS256, good, first, claims(jwt.MapClaims{"sub": json.RawMessage(`"\ud800"`)})),
			"huge token":             w.signed("first", good, jwt.MapClaims{"fill": strings.Repeat("a", 10_000)}),
			"two parts":              "a.b",
			"four parts":             plain + ".x",
			"garbage":                "!.!.!",
			"nothing":                "..",
		} {
			w.refuses(token, name)
		}
		require.EqualValues(t, 1, w.publisher.requests.Load(), "the first fetch alone")
		for name, kid := range map[string]any{
			"a path": "../../../../etc/passwd", "an address": "https://evil.example.com/key", "huge": strings.Repeat("k", 5000),
			"a number": 7, "an object": map[string]any{"a": 1}, "SQL": "' OR 1=1 --",
		} {
			w.refuses(w.signed(kid, good, nil), name)
		}
		w.takes(plain)
		require.LessOrEqual(t, w.publisher.requests.Load(), int64(2))
	})
}

// A refusal names the claim at fault to the client and in the log. The log does not repeat
// itself.
func TestRefusalNamesTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		good := rsaKeys()[0]
		now := time.Now()
		for name, c := range map[string]struct {
			claim, token string
		}{
			"expired":              {"exp", w.signed("first", good, jwt.MapClaims{"exp": now.Add(-time.Hour).Unix()})},
			"no end":               {"exp", w.signed("first", good, jwt.MapClaims{"exp": nil})},
			"end that is a text":   {"exp", w.signed("first", good, jwt.MapClaims{"exp": "tomorrow"})},
			"not yet valid":        {"nbf", w.signed("first", good, jwt.MapClaims{"nbf": now.Add(time.Hour).Unix()})},
			"issued in the future": {"iat", w.signed("first", good, jwt.MapClaims{"iat": now.Add(time.Hour).Unix()})},
			"another audience":     {"aud", w.signed("first", good, jwt.MapClaims{"aud": "elsewhere"})},
			"no audience":          {"aud", w.signed("first", good, jwt.MapClaims{"aud": nil})},
			"another issuer":       {"iss", w.signed("first", good, jwt.MapClaims{"iss": "https://evil.example.com"})},
			"no sub":               {"sub", w.signed("first", good, jwt.MapClaims{"sub": nil})},
			"garbage":              {"", "!.!.!"},
			"another key":          {"", w.signed("first", rsaKeys()[1], jwt.MapClaims{"exp": now.Add(-time.Hour).Unix()})},
		} {
			time.Sleep(10 * time.Second) // on the test's fake clock
			w.log.Reset()
			for range 3 {
				_, err := w.Verify(w.ctx, c.token)
				var refused *refusal.Error
				require.ErrorAs(t, err, &refused, name)
				require.Equal(t, refusal.TokenInvalid, refused.Reason)
				require.Equal(t, c.claim, refused.Field, name)
				if c.claim != "" {
					require.Contains(t, refused.Message, "claim "+c.claim)
				}
			}
			require.Equal(t, 1, strings.Count(w.log.String(), "token refused"), "%s: %s", name, &w.log)
			require.Contains(t, w.log.String(), "claim="+c.claim, name)
		}
	})
}

// A token ends at its expiry plus the skew, also if it was verified before.
func TestTokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		token := w.signed("first", rsaKeys()[0], nil)
		w.takes(token)
		time.Sleep(time.Hour + 58*time.Second)
		w.takes(token)
		time.Sleep(4 * time.Second)
		w.refuses(token)
	})
}

// Keys rotate without a restart. The first token that names a new key causes a fetch. Once the
// issuer has withdrawn a key, tokens of that key are refused, also if they were verified before.
func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		keys := rsaKeys()
		old := w.signed("first", keys[0], nil)
		w.takes(old)
		time.Sleep(time.Minute)
		w.publisher.set(says(200, keySet(t, map[string]any{"first": keys[0].Public(), "second": keys[1].Public()})))
		began := time.Now()
		w.takes(w.signed("second", keys[1], nil))
		require.Zero(t, time.Since(began), "it waits no longer than the fetch")
		w.takes(old)
		w.publisher.set(says(200, keySet(t, map[string]any{"second": keys[1].Public()})))
		time.Sleep(6 * time.Minute)
		w.refuses(old)
		w.takes(w.signed(nil, keys[1], nil)) // the only key of the issuer
	})
}

// Any number of tokens with unknown keys cause one request to the issuer in ten seconds.
func TestUnknownKeysAskTheIssuerSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		token := w.signed("unknown", rsaKeys()[1], nil)
		const minutes = 3
		for range minutes * 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			w.refuses(token)
		}
		requests := w.publisher.requests.Load()
		require.LessOrEqual(t, requests, int64(1+minutes*6))
		require.Greater(t, requests, int64(minutes*4))
	})
}

// An issuer that hangs delays no token of a known key. It delays few others, each for a second at
// most. The issuer recovers.
func TestIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		keys := rsaKeys()
		known, unknown := w.signed("first", keys[0], nil), w.signed("second", keys[1], nil)
		w.publisher.set(func(p *publisher) { p.hangs = true })
		time.Sleep(time.Minute)
		var waited atomic.Int64
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				began := time.Now()
				_, err := w.Verify(w.ctx, unknown)
				if took := time.Since(began); took > 0 {
					waited.Add(1)
					if took > time.Second {
						err = errors.New("it waited too long")
					}
				}
				if refusal.CodeOf(err) != refusal.Unauthenticated {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		w.takes(known)
		require.Zero(t, time.Since(began))
		all.Wait()
		require.LessOrEqual(t, waited.Load(), int64(8))
		require.EqualValues(t, 2, w.publisher.requests.Load())
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, w.Ready(w.ctx), identity.ErrOldKeys)
		w.takes(known)
		w.publisher.set(says(200, keySet(t, map[string]any{"first": keys[0].Public(), "second": keys[1].Public()})))
		time.Sleep(time.Minute)
		require.NoError(t, w.Ready(w.ctx))
		w.takes(unknown)
	})
}

// endless is a body of 100 MB.
type endless struct{ left, read int }

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), e.left)
	if n == 0 {
		return 0, io.EOF
	}
	e.left -= n
	e.read += n
	return copy(p, bytes.Repeat([]byte(" "), n)), nil
}

// The last valid keys stay in use while the issuer's responses contain no keys. Responses are
// read only up to a bounded size.
func TestIssuerLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRSA(t)
		keys := rsaKeys()
		many := jose.JSONWebKeySet{Keys: make([]jose.JSONWebKey, 101)}
		for i := range many.Keys {
			many.Keys[i] = jose.JSONWebKey{Key: keys[1].Public(), KeyID: "first"}
		}
		tooMany, err := json.Marshal(many)
		require.NoError(t, err)
		short, err := rsa.GenerateKey(rand.Reader, 1024)
		require.NoError(t, err)
		long := base64.RawURLEncoding.EncodeToString(append([]byte{0xff}, bytes.Repeat([]byte{0xff}, 2048)...))
		body := &endless{left: 100 << 20}
		for name, lie := range map[string]func(*publisher){
			"500":           says(500, keySet(t, map[string]any{"first": keys[1].Public()})),
			"redirect":      says(302, ""),
			"nothing":       says(200, ""),
			"HTML":          says(200, "<html>"),
			"null":          says(200, "null"),
			"no keys":       says(200, `{"keys": []}`),
			"symmetric key": says(200, `{"keys": [{"kty": "oct", "kid": "first", "k": "AAAA"}]}`),
			"private key":   says(200, keySet(t, map[string]any{"first": keys[1]})),
			"short key":     says(200, keySet(t, map[string]any{"first": short.Public()})),
			"long key":      says(200, `{"keys": [{"kty": "RSA", "kid": "first", "e": "AQAB", "n": "`+long+`"}]}`),
			"other use":     says(200, strings.ReplaceAll(keySet(t, map[string]any{"first": &keys[1].PublicKey}), `"sig"`, `"enc"`)+" "),
			"too many keys": says(200, string(tooMany)),
			"100 MB": func(p *publisher) {
				p.answer = func(*http.Request) (int, io.Reader) { return 200, body }
			},
		} {
			w.publisher.set(lie)
			time.Sleep(6 * time.Minute)
			if name == "other use" { // these keys are not for signatures
				w.refuses(w.signed("first", keys[1], nil), name)
			} else {
				require.ErrorIs(t, w.Ready(w.ctx), identity.ErrOldKeys, name)
				require.Less(t, len(w.Ready(w.ctx).Error()), 1000, name)
				w.takes(w.signed("first", keys[0], nil))
			}
			w.publisher.set(says(200, keySet(t, map[string]any{"first": keys[0].Public()})))
			time.Sleep(6 * time.Minute)
			require.NoError(t, w.Ready(w.ctx), name)
		}
		require.Less(t, body.read, 5<<20, "of a few fetches")
	})
}

// While the keys have never been fetched, a token is neither accepted nor called invalid.
func TestIssuerThatWasNeverReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asymmetric, says(500, "down"))
		synctest.Wait()
		token := w.signed("first", rsaKeys()[0], nil)
		_, err := w.Verify(w.ctx, token)
		var refused *refusal.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, map[string]any{"code": "UNAVAILABLE", "reason": "NO_ISSUER_KEYS", "retryAfter": 10}, refused.Extensions())
		require.False(t, refusal.IsWrongCredential(err))
		w.publisher.set(says(200, keySet(t, map[string]any{"first": rsaKeys()[0].Public()})))
		time.Sleep(11 * time.Second)
		w.takes(token)
	})
}

// The address of a key set, which may contain a secret, is in no error.
func TestAddressOfAKeySetIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, strings.Replace(asymmetric, "/jwks", "/jwks?token=secret", 1), func(p *publisher) { p.hangs = true })
		err := w.Ready(w.ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "secret")
	})
}

// Ready vouches for no issuer before the first fetch of its keys has ended.
func TestReadyWaitsForTheFirstKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, asymmetric, says(200, keySet(t, map[string]any{"first": rsaKeys()[0].Public()})))
		require.NoError(t, w.Ready(w.ctx))
		w.takes(w.signed("first", rsaKeys()[0], nil))

		w = newWorld(t, asymmetric, func(p *publisher) { p.hangs = true })
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, w.Ready(ctx), identity.ErrOldKeys)
		require.ErrorIs(t, w.Ready(w.ctx), identity.ErrOldKeys)
	})
}

func TestDiscovery(t *testing.T) {
	const setting = `[{"issuer": "` + issuerName + `", "audience": "` + audience + `", "discovery": true}]`
	set := keySet(t, map[string]any{"first": rsaKeys()[0].Public()})
	serve := func(document string) func(p *publisher) {
		return func(p *publisher) {
			p.answer = func(r *http.Request) (int, io.Reader) {
				switch r.URL.String() {
				case issuerName + "/.well-known/openid-configuration":
					return 200, strings.NewReader(document)
				case "https://keys.example.com/set":
					return 200, strings.NewReader(set)
				}
				return 404, strings.NewReader("")
			}
		}
	}
	for document, fine := range map[string]bool{
		`{"issuer": "` + issuerName + `", "jwks_uri": "https://keys.example.com/set"}`:       true,
		`{"issuer": "https://evil.example.com", "jwks_uri": "https://keys.example.com/set"}`: false,
		`{"issuer": "` + issuerName + `", "jwks_uri": "file:///etc/passwd"}`:                 false,
		`{"issuer": "` + issuerName + `"}`:                                                   false,
		`garbage`:                                                                            false,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, setting, serve(document))
			synctest.Wait()
			_, err := w.Verify(w.ctx, w.signed("first", rsaKeys()[0], nil))
			require.Equal(t, fine, err == nil, "%s: %v", document, err)
			require.Equal(t, fine, w.Ready(w.ctx) == nil)
		})
	}
}

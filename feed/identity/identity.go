// Package identity verifies tokens (JWT) that issuers other than Tideline sign.
//
// Invariants:
//
//   - Issuers, audiences, algorithms and keys come from the configuration. A token selects among
//     the values configured for its issuer and adds none.
//   - No token causes a request to an issuer of its own choice. Keys are fetched in the
//     background. Tokens with unknown keys cause at most one fetch in ten seconds.
//   - An issuer that hangs, fails or sends wrong answers does not delay tokens whose key is
//     known. The last valid keys stay in use.
//
// The package knows neither users nor sessions: package account creates users from Claims.
package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/errgroup"

	"tideline/feed/refusal"
)

const (
	// MaxExternalID is the maximum length of a user's id at an issuer, in bytes.
	MaxExternalID = 255
	// maxToken is the maximum length of a token, in bytes.
	maxToken = 8 << 10
	// maxVerified bounds the verified tokens that are remembered. When there are more, all are
	// forgotten.
	maxVerified = 20_000
)

// Claims are the claims of a verified token about its user.
type Claims struct {
	Issuer     string
	ExternalID string    // 1 to MaxExternalID bytes; unique at the issuer
	Handle     string    // empty if the token has none; not validated
	Name       string    // like Handle
	Issued     time.Time // zero if the token does not say
	Expires    time.Time // includes the allowed clock skew
}

// Config configures a Verifier.
type Config struct {
	// Issuers are the issuers that Read returned.
	Issuers []Issuer
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Transport carries the requests to issuers. Defaults to a new http.Transport.
	Transport http.RoundTripper
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	now     func() time.Time
	log     *slog.Logger
	issuers map[string]*issuer

	refused refusal.Log

	mu       sync.Mutex
	verified map[tokenHash]verified
}

// issuer is a configured issuer with its keys.
type issuer struct {
	Issuer
	parser *jwt.Parser
	keys   *keys
}

// verified is a verified token, with the key set that verified it.
type verified struct {
	Claims
	issuer *issuer
	with   *keySet
}

type tokenHash = [sha256.Size]byte

// New returns a Verifier. It fetches nothing until Run begins.
func New(c Config) *Verifier {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	v := &Verifier{now: c.Now, log: c.Logger, issuers: make(map[string]*issuer, len(c.Issuers))}
	client := newClient(c.Transport)
	for _, i := range c.Issuers {
		v.issuers[i.Issuer] = &issuer{
			Issuer: i,
			parser: jwt.NewParser(jwt.WithValidMethods(i.Algorithms), jwt.WithIssuer(i.Issuer), jwt.WithAudience(i.Audience...),
				jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(time.Duration(*i.Skew)), jwt.WithTimeFunc(c.Now),
				jwt.WithStrictDecoding(), jwt.WithJSONNumber()),
			keys: newKeys(i, client, c.Now),
		}
	}
	return v
}

// Run keeps the keys of all issuers up to date until ctx ends.
//
// Cost: one or two requests to each issuer, every five minutes.
func (v *Verifier) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, i := range v.issuers {
		g.Go(func() error { return i.keys.run(ctx) })
	}
	return g.Wait()
}

// ErrOldKeys is the error of Ready if the last fetch of an issuer's keys failed, or the first has not ended.
// The last valid keys, if there are any, stay in use.
var ErrOldKeys = errors.New("keys of an issuer cannot be fetched")

// Ready reports the issuers whose last fetch of keys failed. It waits for the first fetch of each issuer
// until ctx ends, and counts one that has not ended by then as failed. Error: ErrOldKeys.
func (v *Verifier) Ready(ctx context.Context) error {
	var errs []error
	for _, i := range v.issuers {
		select {
		case <-i.keys.first:
		case <-ctx.Done():
		}
		if err := i.keys.failure(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrOldKeys, i.Issuer.Issuer, err))
		}
	}
	return errors.Join(errs...)
}

// PublicIDs reports whether users of an issuer may see the ids of its other users.
func (v *Verifier) PublicIDs(issuer string) bool {
	i := v.issuers[issuer]
	return i != nil && i.PublicIDs
}

// IsToken reports whether a token has the form that Verify accepts: three parts separated by
// dots. Tokens of Tideline's own sessions contain no dot.
func IsToken(token string) bool { return len(token) <= maxToken && strings.Count(token, ".") == 2 }

// Recall returns the claims of a token that Verify has accepted before, while they are still
// valid. It only computes a hash.
func (v *Verifier) Recall(token string) (Claims, bool) {
	return v.known(sha256.Sum256([]byte(token)))
}

// Verify verifies a token and returns its claims. The log says why a token was refused. Errors:
// Unauthenticated for a token that is not valid now, with the claim at fault; Unavailable if the
// issuer's keys have never been fetched.
//
// Cost: the verification of a signature; none for a token that was verified before. A token with
// an unknown key waits for a fetch of the keys, at most a second.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	issuer := ""
	refuse := func(why error) (Claims, error) {
		fault := faultOf(why)
		v.tell(ctx, issuer, fault, why)
		return Claims{}, refusal.New(refusal.TokenInvalid, "The token is not valid: %s.", fault.why).In(fault.claim)
	}
	if !IsToken(token) {
		return refuse(jwt.ErrTokenMalformed)
	}
	hash := sha256.Sum256([]byte(token))
	if c, ok := v.known(hash); ok {
		return c, nil
	}
	unverified, _, err := jwt.NewParser().ParseUnverified(token, jwt.MapClaims{})
	if err != nil {
		return refuse(err)
	}
	named, _ := unverified.Claims.GetIssuer()
	i := v.issuers[named]
	if i == nil {
		return refuse(&fault{"iss", "its claim iss names no issuer of this server"})
	}
	issuer = named
	claims, used := jwt.MapClaims{}, (*keySet)(nil)
	_, err = i.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (key any, err error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("the header names extensions that must be understood")
		}
		key, used, err = i.keys.find(ctx, t.Header["kid"], t.Method.Alg())
		return key, err
	})
	if errors.Is(err, errNoKeys) {
		return Claims{}, refusal.New(refusal.NoIssuerKeys, "The token cannot be checked at the moment: the keys of its issuer were never fetched.").Retry(int(askEvery / time.Second))
	}
	if err != nil {
		return refuse(err)
	}
	c, err := i.read(claims)
	if err != nil {
		return refuse(err)
	}
	v.remember(hash, verified{c, i, used})
	return c, nil
}

// fault describes the fault of a token for the client. It names a claim only if the issuer has
// signed the claim, or if the claim is iss.
type fault struct {
	claim string // empty if no claim is at fault
	why   string
}

func (f *fault) Error() string { return f.why }

// faults lists the errors of the parser. It checks the signature before the claims.
var faults = []struct {
	is    error
	fault fault
}{
	{jwt.ErrTokenExpired, fault{"exp", "its claim exp is in the past"}},
	{jwt.ErrTokenNotValidYet, fault{"nbf", "its claim nbf is in the future"}},
	{jwt.ErrTokenUsedBeforeIssued, fault{"iat", "its claim iat is in the future"}},
	{jwt.ErrTokenInvalidAudience, fault{"aud", "its claim aud does not name this server"}},
	{jwt.ErrTokenInvalidIssuer, fault{"iss", "its claim iss names no issuer of this server"}},
	{jwt.ErrTokenMalformed, fault{"", "it is not a JWT"}},
}

// faultOf returns the fault that an error describes.
func faultOf(err error) *fault {
	var found *fault
	if errors.As(err, &found) {
		return found
	}
	for _, known := range faults {
		if errors.Is(err, known.is) {
			return &known.fault
		}
	}
	if errors.Is(err, jwt.ErrTokenRequiredClaimMissing) || errors.Is(err, jwt.ErrInvalidType) {
		for _, claim := range []string{"exp", "aud", "iss", "nbf", "iat"} {
			if strings.Contains(err.Error(), claim+" ") {
				return &fault{claim, "its claim " + claim + " is missing or has the wrong type"}
			}
		}
	}
	return &fault{"", "its issuer has not signed it with a key and an algorithm that this server takes"}
}

// tell logs why a token was refused. An expired token is normal. Any other fault may be caused by
// a wrong setting, here or at the issuer.
func (v *Verifier) tell(ctx context.Context, issuer string, f *fault, why error) {
	omitted, due := v.refused.Due(issuer+" "+f.why, v.now())
	if !due {
		return
	}
	level := slog.LevelWarn
	if f.claim == "exp" {
		level = slog.LevelInfo
	}
	v.log.Log(ctx, level, "token refused", "issuer", issuer, "claim", f.claim, "reason", why, "omitted", omitted)
}

// read takes the claims that the configuration names.
func (i *issuer) read(claims jwt.MapClaims) (Claims, error) {
	c := Claims{Issuer: i.Issuer.Issuer, Handle: text(claims[i.Claims.Handle]), Name: text(claims[i.Claims.Name])}
	switch id := claims[i.Claims.ID].(type) {
	case string:
		c.ExternalID = id
	case json.Number: // some issuers number their users
		if _, err := id.Int64(); err == nil {
			c.ExternalID = id.String()
		}
	}
	// encoding/json decodes every lone surrogate as this rune, so different ids would become
	// equal.
	if n := len(c.ExternalID); n == 0 || n > MaxExternalID || strings.ContainsRune(c.ExternalID, utf8.RuneError) {
		return c, &fault{i.Claims.ID, fmt.Sprintf("its claim %s is no id of 1 to %d bytes", i.Claims.ID, MaxExternalID)}
	}
	if issued, err := claims.GetIssuedAt(); err == nil && issued != nil {
		c.Issued = issued.Time
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return c, jwt.ErrTokenRequiredClaimMissing
	}
	c.Expires = expires.Add(time.Duration(*i.Skew))
	return c, nil
}

func text(claim any) string {
	s, _ := claim.(string)
	return s
}

// known returns the claims of a token that was verified with the current keys.
func (v *Verifier) known(token tokenHash) (Claims, bool) {
	v.mu.Lock()
	found, ok := v.verified[token]
	v.mu.Unlock()
	return found.Claims, ok && found.Expires.After(v.now()) && found.issuer.keys.current() == found.with
}

// remember stores a verified token.
func (v *Verifier) remember(token tokenHash, found verified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verified == nil || len(v.verified) >= maxVerified {
		v.verified = make(map[tokenHash]verified)
	}
	v.verified[token] = found
}

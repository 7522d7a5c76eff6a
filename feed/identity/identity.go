// Package identity verifies the tokens (JWT) that issuers other than Tideline give
// people.
//
// What holds:
//
//   - Issuers, audiences, algorithms and keys come from the configuration. A token
//     chooses among what its issuer is configured for, and adds nothing.
//   - No token makes a request to an issuer of its own. The keys are fetched in the
//     background, and at most once in ten seconds because of a key that is not known.
//   - An issuer that hangs, fails or lies delays nobody whose key is known. Its last
//     good keys stay.
//
// It knows no user and no session: package account makes users of Claims.
package identity

import (
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
	// MaxExternalID bounds the id of a user at an issuer, in bytes.
	MaxExternalID = 255
	// maxToken bounds a token, in bytes.
	maxToken = 8 << 10
	// maxVerified bounds the tokens that are remembered as verified. When there are
	// more, all are forgotten.
	maxVerified = 20_000
)

// Claims are what a verified token says of its user.
type Claims struct {
	Issuer     string
	ExternalID string    // 1 to MaxExternalID bytes; unique at the issuer
	Handle     string    // "" when the token has none; not checked
	Name       string    // as Handle
	Issued     time.Time // zero when the token does not say
	Expires    time.Time // with the clock skew that is allowed
}

// Config is for New.
type Config struct {
	// Issuers are as Read returned them.
	Issuers []Issuer
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Transport carries the requests to issuers. Defaults to one of its own.
	Transport http.RoundTripper
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	now     func() time.Time
	log     *slog.Logger
	issuers map[string]*issuer

	mu       sync.Mutex
	verified map[tokenHash]verified
}

// issuer is one configured issuer, with its keys.
type issuer struct {
	Issuer
	parser *jwt.Parser
	keys   *keys
}

// verified is a token that was verified with the keys of a set.
type verified struct {
	Claims
	issuer *issuer
	with   *keySet
}

type tokenHash = [sha256.Size]byte

// New returns a Verifier. It fetches nothing until Run begins.
func New(c Config) *Verifier {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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

// Run keeps the keys of all issuers fresh until ctx ends.
//
// Cost: one or two requests to each issuer, every five minutes.
func (v *Verifier) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, i := range v.issuers {
		g.Go(func() error { return i.keys.run(ctx) })
	}
	return g.Wait()
}

// ErrOldKeys is the error of Ready while the newest keys of some issuer could not be
// fetched. The last good ones go on.
var ErrOldKeys = errors.New("keys of an issuer cannot be fetched")

// Ready says of which issuers the keys could not be fetched the last time. Error:
// ErrOldKeys.
func (v *Verifier) Ready(context.Context) error {
	var errs []error
	for _, i := range v.issuers {
		if err := i.keys.failure(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrOldKeys, i.Issuer.Issuer, err))
		}
	}
	return errors.Join(errs...)
}

// PublicIDs reports whether the ids of an issuer's users may be told to its other
// users.
func (v *Verifier) PublicIDs(issuer string) bool {
	i := v.issuers[issuer]
	return i != nil && i.PublicIDs
}

// IsToken reports whether a token has the form of those that Verify takes: three parts
// between dots. Those of Tideline's own sessions have none.
func IsToken(token string) bool { return len(token) <= maxToken && strings.Count(token, ".") == 2 }

// Verify returns what a token says. Errors: Unauthenticated for one that is not
// valid now; another one while the issuer's keys have never been fetched.
//
// Cost: a signature, and none for a token that was verified before. A token of a key
// that is not known waits while keys are being fetched, at most a second.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	refuse := func(why error) (Claims, error) {
		v.log.DebugContext(ctx, "token refused", "reason", why)
		return Claims{}, refusal.New(refusal.TokenInvalid, "The token is not valid.")
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
		return refuse(errors.New("no such issuer is configured"))
	}
	claims, used := jwt.MapClaims{}, (*keySet)(nil)
	_, err = i.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (key any, err error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("the header names extensions that must be understood")
		}
		key, used, err = i.keys.find(ctx, t.Header["kid"], t.Method.Alg())
		return key, err
	})
	if errors.Is(err, errNoKeys) {
		return Claims{}, fmt.Errorf("the keys of the issuer %s were never fetched", i.Issuer.Issuer)
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

// read takes from verified claims what the configuration names.
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
	// encoding/json reads any half of a surrogate pair as this rune: two ids would be one.
	if n := len(c.ExternalID); n == 0 || n > MaxExternalID || strings.ContainsRune(c.ExternalID, utf8.RuneError) {
		return c, fmt.Errorf("the claim %q is no id of 1 to %d bytes", i.Claims.ID, MaxExternalID)
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

// known returns the claims of a token that was verified with the keys of now.
func (v *Verifier) known(token tokenHash) (Claims, bool) {
	v.mu.Lock()
	found, ok := v.verified[token]
	v.mu.Unlock()
	return found.Claims, ok && found.Expires.After(v.now()) && found.issuer.keys.current() == found.with
}

// remember remembers a token that was verified.
func (v *Verifier) remember(token tokenHash, found verified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verified == nil || len(v.verified) >= maxVerified {
		v.verified = make(map[tokenHash]verified)
	}
	v.verified[token] = found
}

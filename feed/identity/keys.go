package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"tideline/internal/errs"
)

const (
	// refreshEvery is the time between two fetches of an issuer's keys. After a failure it is
	// retryEvery.
	refreshEvery = 5 * time.Minute
	retryEvery   = 30 * time.Second
	// rereadEvery is the time between two reads of the secrets.
	rereadEvery = 30 * time.Second
	// askEvery is the minimum time between two fetches that unknown keys cause.
	askEvery = 10 * time.Second
	// fetchTimeout is the timeout of a fetch.
	fetchTimeout = 5 * time.Second
	// waitForKeys is how long a token with an unknown key waits for a fetch. maxWaiting is how
	// many tokens wait at once; others are refused at once.
	waitForKeys = time.Second
	maxWaiting  = 8

	// maxAnswer is the maximum size of an issuer's response in bytes. maxKeys is the maximum
	// number of its keys.
	maxAnswer = 512 << 10
	maxKeys   = 100
	// Bounds of an RSA key, in bits. Verifying with a longer key takes long.
	minRSA = 2048
	maxRSA = 8192
)

var (
	errNoKeys     = errors.New("the keys were never fetched")
	errUnknownKey = errors.New("no such key")
)

// keySet is the keys of an issuer at one time. It is immutable.
type keySet struct {
	keys    []jose.JSONWebKey
	secrets []jwt.VerificationKey
}

// pick returns the key for a token. A token without a kid is verified with the only key that fits
// its algorithm.
func (s *keySet) pick(kid any, algorithm string) (any, bool) {
	if s == nil {
		return nil, false
	}
	if len(s.secrets) > 0 {
		return jwt.VerificationKeySet{Keys: s.secrets}, true
	}
	var found any
	for _, k := range s.keys {
		if !fits(k, algorithm) || kid != nil && kid != k.KeyID {
			continue
		}
		if kid != nil {
			return k.Key, true
		}
		if found != nil {
			return nil, false
		}
		found = k.Key
	}
	return found, found != nil
}

// fits reports whether a key can verify signatures of the algorithm.
func fits(k jose.JSONWebKey, algorithm string) bool {
	if k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != algorithm {
		return false
	}
	switch k.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return strings.HasPrefix(algorithm, "ES")
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// keys holds the keys of one issuer. The method run keeps them up to date.
type keys struct {
	issuer Issuer
	client *http.Client
	now    func() time.Time
	asked  chan struct{} // requests a fetch from run

	mu       sync.Mutex
	set      *keySet // nil until the first successful fetch
	err      error   // of the last fetch
	fetching bool    // a fetch is running or about to begin
	began    time.Time
	first    chan struct{} // closed when the first fetch has ended
	ended    chan struct{} // closed when the next fetch has ended
	waiting  int
}

func newKeys(i Issuer, client *http.Client, now func() time.Time) *keys {
	first := make(chan struct{})
	k := &keys{issuer: i, client: client, now: now, asked: make(chan struct{}, 1), err: errNoKeys, first: first, ended: first}
	if i.hasSecret() {
		k.set, k.err = k.readSecrets()
	}
	return k
}

func (k *keys) current() *keySet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set
}

func (k *keys) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// find returns the key for a token and the set that contains it. Errors: errNoKeys,
// errUnknownKey.
func (k *keys) find(ctx context.Context, kid any, algorithm string) (key any, from *keySet, err error) {
	from = k.current()
	key, found := from.pick(kid, algorithm)
	if !found && !k.issuer.hasSecret() {
		k.await(ctx)
		from = k.current()
		key, found = from.pick(kid, algorithm)
	}
	switch {
	case found:
		return key, from, nil
	case from == nil:
		return nil, nil, errNoKeys
	}
	return nil, nil, errUnknownKey
}

// await requests a fetch, unless one began recently, and waits for the running fetch.
func (k *keys) await(ctx context.Context) {
	k.mu.Lock()
	if now := k.now(); !k.fetching && (k.began.IsZero() || now.Sub(k.began) >= askEvery) {
		k.fetching, k.began = true, now
		k.asked <- struct{}{} // has room: run empties it before a fetch ends
	}
	ended := k.ended
	if !k.fetching || k.waiting >= maxWaiting {
		k.mu.Unlock()
		return
	}
	k.waiting++
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.waiting--
	}()
	patience := time.NewTimer(waitForKeys)
	defer patience.Stop()
	select {
	case <-ctx.Done():
	case <-patience.C:
	case <-ended:
	}
}

// run fetches the keys at intervals and on request until ctx ends.
func (k *keys) run(ctx context.Context) error {
	for {
		next := time.NewTimer(k.refresh(ctx))
		select {
		case <-ctx.Done():
			next.Stop()
			return ctx.Err()
		case <-next.C:
		case <-k.asked:
			next.Stop()
		}
	}
}

// refresh fetches the keys and returns the time until the next fetch.
func (k *keys) refresh(ctx context.Context) (again time.Duration) {
	k.mu.Lock()
	k.fetching, k.began = true, k.now()
	k.mu.Unlock()
	set, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil && (k.set == nil || !reflect.DeepEqual(k.set, set)) {
		k.set = set
	}
	select { // requested since the fetch ended
	case <-k.asked:
	default:
	}
	k.fetching = false
	close(k.ended)
	k.ended = make(chan struct{})
	switch {
	case k.issuer.hasSecret():
		return rereadEvery
	case err != nil:
		return retryEvery
	}
	return refreshEvery
}

// fetch reads the secrets or fetches the issuer's keys.
func (k *keys) fetch(ctx context.Context) (*keySet, error) {
	if k.issuer.hasSecret() {
		return k.readSecrets()
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, k.client), fetchTimeout)
	defer cancel()
	address := k.issuer.JWKS
	if k.issuer.Discovery {
		provider, err := oidc.NewProvider(ctx, k.issuer.Issuer)
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", brief(err))
		}
		var found struct {
			JWKS string `json:"jwks_uri"`
		}
		if err := provider.Claims(&found); err != nil || !isAddress(found.JWKS) {
			return nil, errors.New("discovery: it has no jwks_uri")
		}
		address = found.JWKS
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", errs.WithoutURL(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("key set: status %d", answer.StatusCode)
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	return parseKeys(data)
}

func (k *keys) readSecrets() (*keySet, error) {
	secrets, err := k.issuer.secrets()
	if err != nil {
		return nil, err
	}
	set := &keySet{}
	for _, secret := range secrets {
		set.secrets = append(set.secrets, secret)
	}
	return set, nil
}

// parseKeys parses a key set. It leaves out keys that cannot verify tokens, because the set may
// also serve other purposes. A set without usable keys is an error.
func parseKeys(data []byte) (*keySet, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(data, &set) != nil {
		return nil, errors.New("key set: it is no JSON Web Key Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("key set: it has %d keys, more than %d", len(set.Keys), maxKeys)
	}
	usable := &keySet{}
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !k.IsPublic() || !k.Valid() {
			continue
		}
		if long, ok := k.Key.(*rsa.PublicKey); ok && (long.N.BitLen() < minRSA || long.N.BitLen() > maxRSA) {
			continue
		}
		usable.keys = append(usable.keys, k)
	}
	if len(usable.keys) == 0 {
		return nil, errors.New("key set: it has no key that can verify a token")
	}
	return usable, nil
}

// brief shortens the error, which may contain an issuer's response.
func brief(err error) error {
	const most = 300
	if text := err.Error(); len(text) > most {
		return errors.New(strings.ToValidUTF8(text[:most], "") + "…")
	}
	return err
}

// newClient returns a client that limits the size of responses. It does not follow redirects,
// because only the configuration may choose where an issuer's keys come from.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchTimeout,
			IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1, MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true,
		}
	}
	return &http.Client{
		Transport:     boundedAnswers{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// boundedAnswers limits the size of response bodies.
type boundedAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

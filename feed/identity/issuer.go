package identity

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Issuer is a token issuer in the configuration.
type Issuer struct {
	// Issuer is the exact value of the claim iss in its tokens.
	Issuer string `json:"issuer"`
	// Audience lists accepted values of the claim aud. A token must have one of them.
	Audience Texts `json:"audience"`
	// Algorithms are the accepted signature algorithms. Defaults to RS256, or to HS256 for a
	// secret.
	Algorithms Texts `json:"algorithms"`

	// Exactly one of these gives the keys. JWKS is the URL of a key set. Discovery finds that URL
	// with OpenID Connect Discovery. SecretFile and SecretEnv name the file or the environment
	// variable with a shared secret; each line is one secret.
	JWKS       string `json:"jwks"`
	Discovery  bool   `json:"discovery"`
	SecretFile string `json:"secret_file"`
	SecretEnv  string `json:"secret_env"`

	// Skew is how far the issuer's clock may differ from the local clock, up to 5m. Defaults to
	// 1m.
	Skew *Duration `json:"skew"`
	// Claims names the claims with the user's id, and with the handle and name of a new user.
	// Defaults to sub, preferred_username and name.
	Claims struct {
		ID     string `json:"id"`
		Handle string `json:"handle"`
		Name   string `json:"name"`
	} `json:"claims"`
	// PublicIDs lets the issuer's users find each other by their ids.
	PublicIDs bool `json:"public_ids"`
}

// Texts is a list of strings. In JSON it may be a single string.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]string)(t))
	}
	*t = make(Texts, 1)
	return json.Unmarshal(data, &(*t)[0])
}

// Duration is a time.Duration written as time.ParseDuration reads it.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(data []byte) error {
	parsed, err := time.ParseDuration(string(data))
	*d = Duration(parsed)
	return err
}

const (
	defaultSkew = Duration(time.Minute)
	maxSkew     = Duration(5 * time.Minute)
	// maxIssuers is the maximum number of issuers.
	maxIssuers = 100
)

// Algorithms that a configuration may allow. A shared secret needs one of the second list, which
// gives the minimum length of the secret in bytes (RFC 7518, section 3.2).
var (
	asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	symmetric  = map[string]int{"HS256": 32, "HS384": 48, "HS512": 64}
)

// Read reads the issuers from a setting, which is a JSON array or the name of a file with one.
// Its error describes what is wrong, and never contains a secret.
func Read(setting string) ([]Issuer, error) {
	if setting == "" {
		return nil, nil
	}
	data := []byte(setting)
	if !strings.HasPrefix(strings.TrimSpace(setting), "[") {
		var err error
		if data, err = os.ReadFile(setting); err != nil {
			return nil, fmt.Errorf("it must be a JSON array of issuers, or a file that has one: %w", err)
		}
	}
	var issuers []Issuer
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&issuers); err != nil {
		return nil, fmt.Errorf("it must be a JSON array of issuers: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it must be one JSON array of issuers, with nothing after it")
	}
	if len(issuers) > maxIssuers {
		return nil, fmt.Errorf("it has %d issuers: at most %d are allowed", len(issuers), maxIssuers)
	}
	var errs []error
	seen := map[string]bool{}
	for at := range issuers {
		i := &issuers[at]
		i.setDefaults()
		err := i.validate()
		if seen[i.Issuer] {
			err = errors.Join(err, errors.New("it is there twice"))
		}
		seen[i.Issuer] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("issuer %q: %s", i.Issuer, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
	}
	return issuers, errors.Join(errs...)
}

func (i *Issuer) setDefaults() {
	if len(i.Algorithms) == 0 {
		i.Algorithms = Texts{"RS256"}
		if i.hasSecret() {
			i.Algorithms = Texts{"HS256"}
		}
	}
	if i.Skew == nil {
		i.Skew = new(Duration)
		*i.Skew = defaultSkew
	}
	i.Claims.ID = cmp.Or(i.Claims.ID, "sub")
	i.Claims.Handle = cmp.Or(i.Claims.Handle, "preferred_username")
	i.Claims.Name = cmp.Or(i.Claims.Name, "name")
}

func (i *Issuer) hasSecret() bool { return i.SecretFile != "" || i.SecretEnv != "" }

// validate returns everything that is wrong with the issuer.
func (i *Issuer) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(i.Issuer); n == 0 || n > MaxExternalID {
		bad("issuer must be the claim iss of its tokens, 1 to %d bytes", MaxExternalID)
	}
	if len(i.Audience) == 0 || slices.Contains(i.Audience, "") {
		bad("audience must be a claim aud that tokens for Tideline have, or a list of them")
	}
	sources := 0
	for _, given := range []bool{i.JWKS != "", i.Discovery, i.SecretFile != "", i.SecretEnv != ""} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		bad("exactly one of jwks, discovery, secret_file and secret_env must be given")
	}
	for _, algorithm := range i.Algorithms {
		_, secret := symmetric[algorithm]
		if i.hasSecret() && !secret {
			bad("algorithms has %q: with a secret it must be HS256, HS384 or HS512", algorithm)
		}
		if !i.hasSecret() && !slices.Contains(asymmetric, algorithm) {
			bad("algorithms has %q: it must be one of %s", algorithm, strings.Join(asymmetric, ", "))
		}
	}
	if *i.Skew < 0 || *i.Skew > maxSkew {
		bad("skew must be 0s to %v", time.Duration(maxSkew))
	}
	if i.JWKS != "" && !isAddress(i.JWKS) {
		bad("jwks must be an http or https address")
	}
	if i.Discovery && !isAddress(i.Issuer) {
		bad("discovery needs an issuer that is an http or https address")
	}
	if i.hasSecret() && len(errs) == 0 {
		if _, err := i.secrets(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func isAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// maxSecrets is how many secrets may be valid at once, so that a new one can replace an old one.
const maxSecrets = 4

// secrets reads the shared secrets. Its error does not contain them.
func (i *Issuer) secrets() (secrets [][]byte, err error) {
	from, text := "the variable "+i.SecretEnv, os.Getenv(i.SecretEnv)
	if i.SecretFile != "" {
		data, err := os.ReadFile(i.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("secret_file: %w", err)
		}
		from, text = "the file "+i.SecretFile, string(data)
	}
	least := 0
	for _, algorithm := range i.Algorithms {
		least = max(least, symmetric[algorithm])
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		if len(line) < least {
			return nil, fmt.Errorf("%s has a secret of %d bytes: %s needs at least %d", from, len(line), strings.Join(i.Algorithms, ", "), least)
		}
		secrets = append(secrets, []byte(line))
	}
	if n := len(secrets); n == 0 || n > maxSecrets {
		return nil, fmt.Errorf("%s has %d secrets: it must have 1 to %d, each on a line", from, n, maxSecrets)
	}
	return secrets, nil
}

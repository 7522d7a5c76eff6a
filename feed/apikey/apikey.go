// Package apikey manages the API keys with which other servers make calls.
//
// Invariants:
//
//   - The text of a key is shown once, when the key is created. Only the hash of its secret is
//     stored.
//   - The process that revokes a key refuses it at once. All others refuse it within two seconds,
//     even if messages are lost.
//   - No call waits until the last use of its key is recorded.
//
// The package only knows the names of scopes. Package graph decides which scope a call needs, and
// package moderation checks for Moderate.
package apikey

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"tideline/ent"
	"tideline/ent/apikey"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/internal/clock"
	"tideline/internal/errs"
)

// Scope is a permission of a key.
type Scope string

// The scopes, in their order.
const (
	Read     Scope = "READ"     // queries and subscriptions, as any user or anonymously
	Write    Scope = "WRITE"    // mutations as any user, sign-ups and log-ins
	Import   Scope = "IMPORT"   // the bulk mutations
	Manage   Scope = "KEYS"     // create, list and revoke keys of the same issuer, with no scope that the key lacks
	Moderate Scope = "MODERATE" // everything that the role of the user allows, except to assign roles
)

// Scopes lists all scopes, in their order.
var Scopes = []Scope{Read, Write, Import, Manage, Moderate}

const (
	// Prefix begins the text of every key. The number of the key, _ and the secret follow.
	Prefix = ent.APIKeyPrefix
	// MaxName is the maximum length of a key's name, in characters.
	MaxName = 100
	// MaxIssuer is the maximum length of a key's issuer, in bytes.
	MaxIssuer = 255
	// maxKeys is the maximum number of keys that are not revoked.
	maxKeys = 1000
	// trustFor is how long an answer of SQL about a key and a user is trusted.
	trustFor = 2 * time.Second
	// maxKnown bounds the pairs of key and user that a process remembers. When there are more, it
	// forgets all of them.
	maxKnown = 20_000
	// noteEvery is how often the time of the last use is written.
	noteEvery = time.Minute
	// noteTimeout bounds the write.
	noteTimeout = 10 * time.Second
)

var nameField = text.Field{What: "The name", Name: "name", Limit: "nameLength", Least: 1, Most: MaxName}

// Key is an API key, without its secret.
type Key struct {
	ID         int64
	Name       string
	Issuer     string  // external ids in calls with the key are ids at this issuer
	Scopes     []Scope // in the order of Scopes
	CreatedAt  time.Time
	LastUsedAt *time.Time // to the minute; nil if never used
	RevokedAt  *time.Time // nil if not revoked
}

// Has reports whether the key has the scope.
func (k *Key) Has(s Scope) bool { return slices.Contains(k.Scopes, s) }

// covers returns an error unless the key has the issuer and all of the scopes. It allows
// everything to a nil key, which stands for an operator. Error: Forbidden.
func (k *Key) covers(issuer string, scopes []Scope) error {
	if k == nil {
		return nil
	}
	if issuer != k.Issuer {
		return refusal.New(refusal.OtherIssuer, "A key of the issuer %q cannot make or revoke one of the issuer %q.", k.Issuer, issuer)
	}
	for _, s := range scopes {
		if !k.Has(s) {
			return refusal.New(refusal.ScopeMissing, "A key cannot make or revoke one with the scope %s, which it lacks.", s)
		}
	}
	return nil
}

// PublicID returns the id of the key in the API. The text of the key begins with it.
func (k *Key) PublicID() string { return ent.APIKeyID(k.ID) }

// ParseID returns the number of a key from its PublicID or its text. Error: NotFound.
func ParseID(text string) (int64, error) {
	digits, prefixed := strings.CutPrefix(text, Prefix)
	digits, _, _ = strings.Cut(digits, "_")
	id, err := strconv.ParseInt(digits, 10, 64)
	if !prefixed || err != nil || id < 1 {
		return 0, errNoSuchKey
	}
	return id, nil
}

var (
	errNoSuchKey error = refusal.New(refusal.NoSuchKey, "There is no such API key.")
	errRefused   error = refusal.New(refusal.KeyInvalid, "The API key is not valid.")
	errNoUser    error = refusal.New(refusal.NobodyToActFor, "There is no such user to act for.")
)

// Config configures Keys. DB is required.
type Config struct {
	DB *ent.Client
	// MaxPage is the maximum number of entries on a page of List. Defaults to
	// paging.DefaultMaxSize.
	MaxPage int
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Keys manages API keys. It is safe for concurrent use.
type Keys struct {
	cfg Config

	mu      sync.Mutex
	known   map[credentialHash]known
	revokes int64               // counts how often known was cleared because a key was revoked
	used    map[int64]time.Time // since the last write
}

type credentialHash = [sha256.Size]byte

// known is the answer of SQL about a credential.
type known struct {
	key     *Key
	user    int64
	checked time.Time
}

// New returns Keys.
func New(cfg Config) (*Keys, error) {
	if cfg.DB == nil {
		return nil, errors.New("API keys: DB is required")
	}
	cfg.MaxPage = cmp.Or(cfg.MaxPage, paging.DefaultMaxSize)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keys{cfg: cfg, used: map[int64]time.Time{}}, nil
}

// now returns UTC, because SQLite compares times as text.
func (k *Keys) now() time.Time { return k.cfg.Now().UTC() }

// Create creates a key and returns it with its text, which cannot be read again later. The
// parameter by is the key that makes the call, nil for an operator. Errors: BadInput; Forbidden
// for a scope that by lacks, and for another issuer.
//
// Cost: a count of the keys and an insert.
func (k *Keys) Create(ctx context.Context, by *Key, name, issuer string, scopes []Scope) (made *Key, secretText string, err error) {
	if name, err = nameField.CleanLine(name); err != nil {
		return nil, "", err
	}
	if len(issuer) > MaxIssuer || !utf8.ValidString(issuer) || strings.ContainsRune(issuer, 0) {
		return nil, "", refusal.New(refusal.TooLong, "The issuer has more than %d bytes, or is not text.", MaxIssuer).In("issuer")
	}
	var names []string
	for _, s := range Scopes {
		if slices.Contains(scopes, s) {
			names = append(names, string(s))
		}
	}
	if len(names) == 0 || slices.ContainsFunc(scopes, func(s Scope) bool { return !slices.Contains(Scopes, s) }) {
		return nil, "", refusal.New(refusal.BadScopes, "A key has one or more of the scopes %v.", Scopes).In("scopes")
	}
	if err := by.covers(issuer, scopes); err != nil {
		return nil, "", err
	}
	n, err := k.cfg.DB.APIKey.Query().Where(apikey.RevokedAtIsNil()).Count(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("count API keys: %w", err)
	}
	if n >= maxKeys {
		return nil, "", refusal.New(refusal.TooManyKeys, "There are %d API keys; revoke some first.", n)
	}
	raw := make([]byte, 32)
	rand.Read(raw)
	secret := base64.RawURLEncoding.EncodeToString(raw)
	hash := sha256.Sum256([]byte(secret))
	row, err := k.cfg.DB.APIKey.Create().SetName(name).SetIssuer(issuer).SetScopes(strings.Join(names, ",")).
		SetSecretHash(hash[:]).SetCreatedAt(k.now()).Save(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("create API key: %w", err)
	}
	made = keyOf(row)
	return made, made.PublicID() + "_" + secret, nil
}

func keyOf(row *ent.APIKey) *Key {
	k := &Key{ID: row.ID, Name: row.Name, Issuer: row.Issuer, CreatedAt: row.CreatedAt, LastUsedAt: row.LastUsedAt, RevokedAt: row.RevokedAt}
	for name := range strings.SplitSeq(row.Scopes, ",") {
		k.Scopes = append(k.Scopes, Scope(name))
	}
	return k
}

// List returns a page of all keys, including revoked ones, newest first. Error: BadInput.
//
// Cost: an index range.
func (k *Keys) List(ctx context.Context, p paging.Page) (*paging.Connection[Key], error) {
	w, err := paging.Open(p, paging.Keys, 0, k.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	q := k.cfg.DB.APIKey.Query().Order(ent.Desc(apikey.FieldID)).Limit(r.Limit)
	if w.After != nil {
		q.Where(apikey.IDLT(r.Upper()))
	}
	found, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	list := rows.Map(found, keyOf)
	return paging.ConnectBy(w, list, paging.Keys, 0, func(key *Key) int64 { return key.ID }), nil
}

// Revoke revokes a key permanently. Its sockets are closed within seconds. Revoking a key again
// changes nothing. The parameter by is the key that makes the call, nil for an operator. Errors:
// NotFound; Forbidden for a key of another issuer, or with a scope that by lacks.
//
// Cost: two look-ups and an update by primary key.
func (k *Keys) Revoke(ctx context.Context, by *Key, id int64) (*Key, error) {
	revoked, err := k.get(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := by.covers(revoked.Issuer, revoked.Scopes); err != nil {
		return nil, err
	}
	_, err = k.cfg.DB.APIKey.Update().Where(apikey.ID(id), apikey.RevokedAtIsNil()).SetRevokedAt(k.now()).Save(ctx)
	if err != nil {
		return nil, fmt.Errorf("revoke API key: %w", err)
	}
	k.mu.Lock()
	k.known = nil
	k.revokes++
	k.mu.Unlock()
	return k.get(ctx, id)
}

func (k *Keys) get(ctx context.Context, id int64) (*Key, error) {
	row, err := k.cfg.DB.APIKey.Get(ctx, id)
	if ent.IsNotFound(err) {
		return nil, errNoSuchKey
	}
	if err != nil {
		return nil, fmt.Errorf("find API key: %w", err)
	}
	return keyOf(row), nil
}

// Ended returns the keys that are revoked or do not exist.
//
// Cost: one query.
func (k *Keys) Ended(ctx context.Context, ids []int64) ([]int64, error) {
	open, err := k.cfg.DB.APIKey.Query().Where(rows.Among(apikey.FieldID, ids), apikey.RevokedAtIsNil()).IDs(ctx)
	return rows.Without(ids, open), errs.Wrap(err, "find API keys")
}

// IsKey reports whether a credential is for Authenticate. A key that was cut off counts as a key,
// so that its sender is told that the key is not valid. The token of a session may begin with
// Prefix by chance; it has exactly the length of 32 encoded bytes, and every complete key is
// longer.
func IsKey(credential string) bool {
	key, _, _ := strings.Cut(credential, " ")
	return strings.HasPrefix(key, Prefix) && len(key) != base64.RawURLEncoding.EncodedLen(32)
}

// Authenticate returns the key of a credential and the id of the user that it acts for, or 0. A
// credential is the text of a key, optionally followed by a space and the user. The user is a
// global id, or external: and the percent-encoded id of the user at the key's issuer. Error:
// Unauthenticated for a key that is unknown or revoked, or a user who does not exist or is
// hidden.
//
// Cost: none for a credential that was used within two seconds; otherwise two look-ups by index.
func (k *Keys) Authenticate(ctx context.Context, credential string) (*Key, int64, error) {
	now, hash := k.now(), sha256.Sum256([]byte(credential))
	found, revokes, ok := k.recall(hash, now)
	if ok {
		return found.key, found.user, nil
	}
	found = known{checked: now}
	token, actAs, acts := strings.Cut(credential, " ")
	var err error
	if found.key, err = k.find(ctx, token); err != nil {
		return nil, 0, err
	}
	if acts {
		if found.user, err = k.userOf(ctx, found.key, actAs); err != nil {
			return nil, 0, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used[found.key.ID] = now
	if k.revokes == revokes {
		if k.known == nil || len(k.known) >= maxKnown {
			k.known = map[credentialHash]known{}
		}
		k.known[hash] = found
	}
	return found.key, found.user, nil
}

// Recall returns the result of Authenticate for a credential that was checked within the last two
// seconds. It only computes a hash.
func (k *Keys) Recall(credential string) (key *Key, user int64, ok bool) {
	found, _, ok := k.recall(sha256.Sum256([]byte(credential)), k.now())
	return found.key, found.user, ok
}

// recall returns a remembered credential that can still be trusted. Authenticate compares revokes
// before it remembers a new one.
func (k *Keys) recall(hash credentialHash, now time.Time) (found known, revokes int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found, ok = k.known[hash]
	if ok = ok && clock.Within(trustFor, found.checked, now); ok {
		k.used[found.key.ID] = now
	}
	return found, k.revokes, ok
}

// find returns the key with the given text. It compares hashes in constant time.
func (k *Keys) find(ctx context.Context, token string) (*Key, error) {
	id, err := ParseID(token)
	if err != nil {
		return nil, errRefused
	}
	_, secret, _ := strings.Cut(strings.TrimPrefix(token, Prefix), "_")
	row, err := k.cfg.DB.APIKey.Query().Where(apikey.ID(id), apikey.RevokedAtIsNil()).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, errRefused
	}
	if err != nil {
		return nil, fmt.Errorf("find API key: %w", err)
	}
	hash := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(hash[:], row.SecretHash) != 1 {
		return nil, errRefused
	}
	return keyOf(row), nil
}

// userOf returns the user that the key is to act for.
func (k *Keys) userOf(ctx context.Context, key *Key, actAs string) (int64, error) {
	q := k.cfg.DB.User.Query().Where(user.Hidden(false))
	if external, ok := strings.CutPrefix(actAs, "external:"); ok {
		id, err := url.PathUnescape(external)
		if err != nil || id == "" {
			return 0, errNoUser
		}
		q.Where(user.Issuer(key.Issuer), user.ExternalID([]byte(id)))
	} else {
		kind, id, ok := ent.ParseNodeID(actAs)
		if !ok || kind != "User" {
			return 0, errNoUser
		}
		q.Where(user.ID(id))
	}
	id, err := q.OnlyID(ctx)
	if ent.IsNotFound(err) {
		return 0, errNoUser
	}
	return id, errs.Wrap(err, "find the user to act for")
}

// Run writes the times of last use once a minute until ctx ends.
//
// Cost: an update by primary key, once a minute, for each key that was used.
func (k *Keys) Run(ctx context.Context) error {
	err := clock.Every(ctx, noteEvery, k.noteUse)
	k.noteUse(context.WithoutCancel(ctx))
	return err
}

// noteUse writes the times of last use since the previous call. It does not retry a failed write.
func (k *Keys) noteUse(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	k.mu.Lock()
	used := k.used
	k.used = map[int64]time.Time{}
	k.mu.Unlock()
	for id, at := range used {
		at = at.Truncate(time.Millisecond)
		err := k.cfg.DB.APIKey.Update().SetLastUsedAt(at).
			Where(apikey.ID(id), apikey.Or(apikey.LastUsedAtIsNil(), apikey.LastUsedAtLT(at))).Exec(ctx)
		if err != nil {
			k.cfg.Logger.WarnContext(ctx, "the last use of an API key is not noted", "key", id, "error", err)
			return
		}
	}
}

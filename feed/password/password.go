// Package password hashes passwords and verifies them, also against hashes of other systems.
package password

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"runtime"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/sync/semaphore"

	"tideline/feed/refusal"
)

// Bounds of a password, in characters (Unicode code points).
const (
	Min = 8
	Max = 200
)

// The parameters of new hashes are the minimum that OWASP's password storage cheat sheet
// recommends for argon2id. A stored hash names its own parameters, so these can be raised at any
// time: the next log-in renews the hash.
const (
	hashMemory = 19 * 1024 // KiB
	hashPasses = 2
	hashLanes  = 1
	saltLength = 16
	keyLength  = 32
)

// Check refuses a password that is too short or too long. The parameter field names the input
// field with the password, for the error. Error: BadInput.
func Check(field, s string) error {
	const message = "A password has %d to %d characters."
	switch n := utf8.RuneCountInString(s); {
	case !utf8.ValidString(s):
		return refusal.New(refusal.NotText, "A password is valid Unicode.").In(field)
	case n < Min:
		return refusal.New(refusal.TooShort, message, Min, Max).In(field).Beyond("passwordMinLength", Min, n)
	case n > Max:
		return refusal.New(refusal.TooLong, message, Min, Max).In(field).Beyond("passwordLength", Max, n)
	}
	return nil
}

// Hash returns the argon2id hash of a password in PHC string format. Error: BadInput, as Check.
//
// Cost: two passes over 19 MiB.
func Hash(password string) (string, error) {
	if err := Check("password", password); err != nil {
		return "", err
	}
	return hash(password), nil
}

func hash(password string) string {
	salt := make([]byte, saltLength)
	rand.Read(salt) // never fails
	key := argon2.IDKey([]byte(password), salt, hashPasses, hashMemory, hashLanes, keyLength)
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, hashMemory, hashPasses, hashLanes,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(key))
}

// Hasher limits how many hashes a process computes at once to the number of processors, because
// each takes 19 MiB. It is safe for concurrent use.
type Hasher struct {
	running *semaphore.Weighted
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher {
	return &Hasher{semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// Hash hashes a password without Check, because the password of an imported user may be shorter.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	if err := h.running.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer h.running.Release(1)
	return hash(password), nil
}

// Verify reports whether the password matches the stored hash, and whether the hash has another
// algorithm or other parameters than new hashes. If the stored hash cannot be used, no password
// matches, and Verify takes as long as for a new hash.
func (h *Hasher) Verify(ctx context.Context, password, stored string) (fits, old bool, err error) {
	if err := h.running.Acquire(ctx, 1); err != nil {
		return false, false, err
	}
	defer h.running.Release(1)
	known, unusable := parse(stored)
	if unusable != nil {
		hash(password) // to take as long as a verification
		return false, false, nil
	}
	if fits, err = known.matches(password); err != nil {
		return false, false, fmt.Errorf("verify a password: %w", err)
	}
	return fits, !known.current, nil
}

// Package password hashes passwords, also those that other systems have hashed.
package password

import (
	"context"
	"fmt"
	"runtime"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/sync/semaphore"

	"tideline/feed/refusal"
)

// Bounds of a password, in characters (Unicode code points).
const (
	Min = 8
	Max = 200
)

// cost is the minimum that OWASP's password storage cheat sheet recommends for
// argon2id: 19 MiB, two passes, one lane. A stored hash names its own cost, so a
// higher one here locks nobody out: the next log-in renews the hash.
var cost = &argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// Check refuses a password that is too short or too long; field is the input's field that
// has it. Error: BadInput.
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

// Hash returns the argon2id hash of a password in PHC string format. Error: BadInput, as
// of Check.
//
// Cost: two passes over 19 MiB.
func Hash(password string) (string, error) {
	if err := Check("password", password); err != nil {
		return "", err
	}
	return hash(password)
}

func hash(password string) (string, error) {
	text, err := argon2id.CreateHash(password, cost)
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return text, nil
}

// Hasher bounds how many hashes a process computes at once: as many as there are
// processors, because each takes 19 MiB. It is safe for concurrent use.
type Hasher struct {
	running *semaphore.Weighted
	dummy   string // is checked where there is no usable hash
}

// NewHasher returns a Hasher. It costs one hash.
func NewHasher() (*Hasher, error) {
	dummy, err := hash("nobody has this password")
	return &Hasher{semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), dummy}, err
}

// Hash is the function Hash without Check, for the password of another system may be a
// short one.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	if err := h.running.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer h.running.Release(1)
	return hash(password)
}

// Verify reports whether the password matches the stored hash, and whether that is of
// another kind or cost than the present one. No password matches an account without a
// usable hash; to find that out takes as long as a hash of the present cost.
func (h *Hasher) Verify(ctx context.Context, password, stored string) (fits, old bool, err error) {
	if err := h.running.Acquire(ctx, 1); err != nil {
		return false, false, err
	}
	defer h.running.Release(1)
	known, unusable := parse(stored)
	if unusable != nil {
		_, err = argon2id.ComparePasswordAndHash(password, h.dummy)
		return false, false, err
	}
	if fits, err = known.matches(password); err != nil {
		return false, false, fmt.Errorf("verify a password: %w", err)
	}
	return fits, !known.current, nil
}

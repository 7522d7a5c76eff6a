package account

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/refusal"
)

// Bounds of a password, in characters (Unicode code points).
const (
	MinPassword = 8
	MaxPassword = 200
)

// cost is the minimum that OWASP's password storage cheat sheet recommends for
// argon2id: 19 MiB, two passes, one lane. A stored hash names its own cost, so a
// higher one here locks nobody out: the next log-in renews the hash.
var cost = &argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

func checkPassword(s string) error {
	if n := utf8.RuneCountInString(s); !utf8.ValidString(s) || n < MinPassword || n > MaxPassword {
		return refusal.New(refusal.BadInput, "A password has %d to %d characters.", MinPassword, MaxPassword)
	}
	return nil
}

// HashPassword returns the hash of a password for accounts that are made in bulk,
// without SignUp. Error: BadInput when SignUp refuses the password.
func HashPassword(password string) (string, error) {
	if err := checkPassword(password); err != nil {
		return "", err
	}
	return hash(password)
}

// hash returns the password's argon2id hash in PHC string format.
func hash(password string) (string, error) {
	text, err := argon2id.CreateHash(password, cost)
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return text, nil
}

// hash is the function hash with a bound: at most as many run at once as there are
// processors, because each takes 19 MiB.
func (a *Accounts) hash(ctx context.Context, password string) (string, error) {
	if err := a.hashing.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer a.hashing.Release(1)
	return hash(password)
}

// verify reports whether the password matches the stored hash, and whether that is of
// another kind or cost than the present one. No password matches an account without a
// usable hash; to find that out takes as long as a hash of the present cost.
func (a *Accounts) verify(ctx context.Context, password, stored string) (fits, old bool, err error) {
	if err := a.hashing.Acquire(ctx, 1); err != nil {
		return false, false, err
	}
	defer a.hashing.Release(1)
	h, unusable := parseHash(stored)
	if unusable != nil {
		_, err = argon2id.ComparePasswordAndHash(password, a.dummyHash)
		return false, false, err
	}
	if fits, err = h.matches(password); err != nil {
		return false, false, fmt.Errorf("verify a password: %w", err)
	}
	return fits, !h.current, nil
}

// renewHash stores a hash of the present cost for a password that has been
// verified. A failure does not refuse the log-in: the next one tries again.
func (a *Accounts) renewHash(ctx context.Context, u *ent.User, password string) {
	renewed, err := a.hash(ctx, password)
	if err == nil { // only if the password has not changed meanwhile
		err = a.cfg.DB.User.Update().Where(user.ID(u.ID), user.PasswordHash(u.PasswordHash)).SetPasswordHash(renewed).Exec(ctx)
	}
	if err != nil {
		a.cfg.Logger.WarnContext(ctx, "password hash not renewed", "user", u.ID, "error", err)
	}
}

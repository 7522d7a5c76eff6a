package login

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/internal/errs"
)

// ChangePassword changes the viewer's password and ends all other sessions, as session.Store.EndAll
// does. A concurrent log-in with the former password fails. It returns how many sessions ended. Errors:
// Unauthenticated; BadInput for the new password; Forbidden if the current password is wrong or
// the user has none.
//
// Cost: two password hashes, as SignUp, a look-up and an update by primary key, session.Store.EndAll,
// and one message to each process.
func (l *Login) ChangePassword(ctx context.Context, v session.Viewer, current, changed string) (ended int, err error) {
	if err := password.Check("newPassword", changed); err != nil {
		return 0, err
	}
	u, err := l.confirmPassword(ctx, v, current)
	if err != nil {
		return 0, err
	}
	hash, err := l.passwords.Hash(ctx, changed)
	if err != nil {
		return 0, err
	}
	err = rows.InTx(ctx, l.cfg.DB, func(tx *ent.Tx) error {
		// The row stays locked until the sessions are deleted, so no log-in can start a session
		// in between.
		err := tx.User.UpdateOneID(u.ID).Where(user.PasswordHash(u.PasswordHash)).SetPasswordHash(hash).Exec(ctx)
		if ent.IsNotFound(err) {
			return errPasswordChanged
		}
		if err != nil {
			return fmt.Errorf("change password: %w", err)
		}
		ended, err = l.cfg.Sessions.EndAll(ctx, tx, u.ID, v.Session)
		return err
	})
	if err != nil {
		return 0, err
	}
	l.cfg.Sessions.TellEnded(ctx, u.ID)
	return ended, nil
}

var errPasswordChanged error = refusal.New(refusal.PasswordChanged, "The password was changed at the same time. Try again.")

// confirmPassword checks the viewer's password and returns the viewer's row. Errors:
// Unauthenticated; Forbidden if the password is wrong or the user has none.
//
// Cost: one password hash, as LogIn, and a look-up.
func (l *Login) confirmPassword(ctx context.Context, v session.Viewer, secret string) (*ent.User, error) {
	u, err := l.self(ctx, v)
	if err != nil {
		return nil, err
	}
	if !l.hasPassword(u) {
		return nil, refusal.New(refusal.NoPassword, "This account has no password.")
	}
	return u, l.verify(ctx, u, "currentPassword", secret)
}

// self returns the viewer's row. Error: Unauthenticated.
func (l *Login) self(ctx context.Context, v session.Viewer) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	u, err := l.cfg.DB.User.Get(ctx, v.ID)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrSignIn
	}
	return u, errs.Wrap(err, "find user")
}

// hasPassword reports whether the user can log in with a password. This includes a user of an
// issuer who was imported with a password hash.
func (l *Login) hasPassword(u *ent.User) bool {
	return !l.cfg.NoPasswords && u.PasswordHash != account.NoPassword && u.PasswordHash != ""
}

// verify checks the password of a user who has one. Error: Forbidden.
func (l *Login) verify(ctx context.Context, u *ent.User, field, secret string) error {
	fits, _, err := l.passwords.Verify(ctx, secret, u.PasswordHash)
	if err == nil && !fits {
		err = refusal.New(refusal.WrongPassword, "The present password is wrong.").In(field)
	}
	return err
}

// renewHash replaces the hash of a verified password by one with current parameters. A failure is
// only logged: the next log-in tries again.
func (l *Login) renewHash(ctx context.Context, u *ent.User, password string) {
	renewed, err := l.passwords.Hash(ctx, password)
	if err == nil { // only if the password has not changed meanwhile
		err = l.cfg.DB.User.Update().Where(user.ID(u.ID), user.PasswordHash(u.PasswordHash)).SetPasswordHash(renewed).Exec(ctx)
	}
	if err != nil {
		l.cfg.Logger.WarnContext(ctx, "password hash not renewed", "user", u.ID, "error", err)
	}
}

// FreshToken is the maximum age of an issuer's token that confirms the deletion or the export of
// an account without a password.
const FreshToken = 10 * time.Minute

// Confirm checks again who the viewer is: with the password, if the account has one, or with a
// token that the issuer signed within FreshToken. It accepts every call with an API key, because
// the server that makes the call decides for itself. It returns the stored hash that the password
// fits, or nothing if the password was not needed. Errors: Unauthenticated, Forbidden.
//
// Cost: none with a fresh token or an API key; otherwise a look-up, and one password hash, as
// LogIn, if the account has a password.
func (l *Login) Confirm(ctx context.Context, v session.Viewer, password string) (verified string, err error) {
	switch {
	case v.ID == 0:
		return "", refusal.ErrSignIn
	case v.Key != nil:
		return "", nil
	case !v.Issued.IsZero() && l.now().Sub(v.Issued) <= FreshToken:
		return "", nil
	}
	u, err := l.self(ctx, v)
	if err != nil {
		return "", err
	}
	minutes := int(FreshToken.Minutes())
	switch {
	case l.hasPassword(u) && (password != "" || v.Issued.IsZero()):
		return u.PasswordHash, l.verify(ctx, u, "password", password)
	case !v.Issued.IsZero():
		return "", refusal.New(refusal.TokenNotFresh, "Sign in anew: the token must be of the last %d minutes.", minutes)
	case u.Issuer != nil: // without a password, only a token of the issuer signs in
		return "", refusal.New(refusal.TokenWithoutIat, "The token must be of the last %d minutes, and has no claim iat that says when it was issued.", minutes)
	}
	return "", refusal.New(refusal.NoPassword, "This account has no password.")
}

// DeleteAccount confirms the viewer with Confirm and then calls Delete with the configured grace
// period. It returns the time until which LogIn restores the account, or nil if it cannot be
// restored. Errors: Unauthenticated, Forbidden.
//
// Cost: Confirm and Delete.
func (l *Login) DeleteAccount(ctx context.Context, v session.Viewer, password string) (*time.Time, error) {
	if _, err := l.Confirm(ctx, v, password); err != nil {
		return nil, err
	}
	until, _, err := l.cfg.Accounts.Delete(ctx, v.ID, l.cfg.Grace)
	return until, err
}

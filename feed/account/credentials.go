package account

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
)

// ChangeHandle changes the viewer's handle. The former handle is free at once: a look-up finds
// nobody, or another user who has taken it. Errors: Unauthenticated, BadInput; Conflict if the
// new handle is taken.
//
// Cost: a short transaction of an update and a look-up by primary key, and KeepNames.
func (a *Accounts) ChangeHandle(ctx context.Context, v Viewer, handle string) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	handle, err := Handle(handle)
	if err != nil {
		return nil, err
	}
	var u *ent.User
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		err := tx.User.Update().Where(user.ID(v.ID)).SetHandle(handle).Exec(ctx)
		if ent.IsConstraintError(err) {
			return refusal.New(refusal.HandleTaken, "The handle @%s is taken.", handle).In("handle")
		}
		if err == nil {
			u, err = tx.User.Query().Where(user.ID(v.ID), rows.WithFollows).Only(ctx)
		}
		if ent.IsNotFound(err) {
			return refusal.ErrSignIn
		}
		if err != nil {
			return fmt.Errorf("change handle: %w", err)
		}
		if err := KeepNames(ctx, tx, u); err != nil {
			return err
		}
		return a.with.Webhooks.User(ctx, tx, webhook.UserUpdated, u)
	})
	return u, err
}

// ChangePassword changes the viewer's password and ends all other sessions, as SignOut does. A
// concurrent log-in with the former password fails. It returns how many sessions ended. Errors:
// Unauthenticated; BadInput for the new password; Forbidden if the current password is wrong or
// the user has none.
//
// Cost: two password hashes, as SignUp, two look-ups and an update by primary key, a deletion by
// index, and one message to each process.
func (a *Accounts) ChangePassword(ctx context.Context, v Viewer, current, changed string) (ended int, err error) {
	if err := password.Check("newPassword", changed); err != nil {
		return 0, err
	}
	u, err := a.ConfirmPassword(ctx, v, "currentPassword", current)
	if err != nil {
		return 0, err
	}
	hash, err := a.passwords.Hash(ctx, changed)
	if err != nil {
		return 0, err
	}
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		// The row stays locked until the sessions are deleted, so no log-in can start a session
		// in between.
		err := tx.User.UpdateOneID(u.ID).Where(user.PasswordHash(u.PasswordHash)).SetPasswordHash(hash).Exec(ctx)
		if ent.IsNotFound(err) {
			return refusal.New(refusal.PasswordChanged, "The password was changed at the same time. Try again.")
		}
		if err != nil {
			return fmt.Errorf("change password: %w", err)
		}
		ended, err = deleteSessions(ctx, tx.Session, session.UserID(u.ID), session.IDNEQ(v.Session))
		return err
	})
	if err != nil {
		return 0, err
	}
	a.tellSeveral(ctx, u.ID)
	return ended, nil
}

// ConfirmPassword checks the viewer's password and returns the viewer's row. The parameter field
// names the input field with the password, for the error. Errors: Unauthenticated; Forbidden if
// the password is wrong or the user has none.
//
// Cost: one password hash, as LogIn, and a look-up.
func (a *Accounts) ConfirmPassword(ctx context.Context, v Viewer, field, secret string) (*ent.User, error) {
	u, err := a.self(ctx, v)
	if err != nil {
		return nil, err
	}
	if !a.hasPassword(u) {
		return nil, refusal.New(refusal.NoPassword, "This account has no password.")
	}
	return u, a.verify(ctx, u, field, secret)
}

// self returns the viewer's row. Error: Unauthenticated.
func (a *Accounts) self(ctx context.Context, v Viewer) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	u, err := a.cfg.DB.User.Get(ctx, v.ID)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrSignIn
	}
	return u, rows.Wrap("find user", err)
}

// hasPassword reports whether the user can log in with a password. This includes a user of an
// issuer who was imported with a password hash.
func (a *Accounts) hasPassword(u *ent.User) bool {
	return !a.with.NoPasswords && u.PasswordHash != NoPassword && u.PasswordHash != ""
}

// verify checks the password of a user who has one. Error: Forbidden.
func (a *Accounts) verify(ctx context.Context, u *ent.User, field, secret string) error {
	fits, _, err := a.passwords.Verify(ctx, secret, u.PasswordHash)
	if err == nil && !fits {
		err = refusal.New(refusal.WrongPassword, "The present password is wrong.").In(field)
	}
	return err
}

// renewHash replaces the hash of a verified password by one with current parameters. A failure is
// only logged: the next log-in tries again.
func (a *Accounts) renewHash(ctx context.Context, u *ent.User, password string) {
	renewed, err := a.passwords.Hash(ctx, password)
	if err == nil { // only if the password has not changed meanwhile
		err = a.cfg.DB.User.Update().Where(user.ID(u.ID), user.PasswordHash(u.PasswordHash)).SetPasswordHash(renewed).Exec(ctx)
	}
	if err != nil {
		a.cfg.Logger.WarnContext(ctx, "password hash not renewed", "user", u.ID, "error", err)
	}
}

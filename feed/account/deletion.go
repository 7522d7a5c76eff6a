package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
	"tideline/queue"
)

// DELETION.md tells the protocol by which an account goes.

// FreshToken is how old the token of a user of an issuer may be who deletes or exports the
// account without a password.
const FreshToken = 10 * time.Minute

// Confirm refuses a viewer who does not show once more who it is: by the password, if the
// account has one, or by a token that an issuer made within FreshToken. A server that acts for
// the viewer by an API key has decided for itself. Errors: Unauthenticated, Forbidden.
//
// Cost: none with a fresh token; else a look-up, and one password hash, as LogIn, where the
// account has a password.
func (a *Accounts) Confirm(ctx context.Context, v Viewer, password string) error {
	switch {
	case v.ID == 0:
		return refusal.ErrSignIn
	case v.Key != nil:
		return nil
	case !v.Issued.IsZero() && a.now().Sub(v.Issued) <= FreshToken:
		return nil
	}
	u, err := a.self(ctx, v)
	if err != nil {
		return err
	}
	minutes := int(FreshToken.Minutes())
	switch {
	case a.hasPassword(u) && (password != "" || v.Issued.IsZero()):
		return a.verify(ctx, u, "password", password)
	case !v.Issued.IsZero():
		return refusal.New(refusal.TokenNotFresh, "Sign in anew: the token must be of the last %d minutes.", minutes)
	case u.Issuer != nil: // without a password only a token of the issuer signs in
		return refusal.New(refusal.TokenWithoutIat, "The token must be of the last %d minutes, and has no claim iat that says when it was issued.", minutes)
	}
	return refusal.New(refusal.NoPassword, "This account has no password.")
}

// DeleteAccount is Delete of the viewer, after Confirm, with the grace period of the
// configuration. It returns until when LogIn restores the account; nil when it does not.
// Errors: Unauthenticated, Forbidden.
//
// Cost: that of Confirm and Delete.
func (a *Accounts) DeleteAccount(ctx context.Context, v Viewer, password string) (*time.Time, error) {
	if err := a.Confirm(ctx, v, password); err != nil {
		return nil, err
	}
	until, _, err := a.Delete(ctx, v.ID, a.cfg.Grace)
	return until, err
}

// Delete hides a user from everybody and ends all sessions, as SignOut. After the grace
// period the user is deleted, by a job. Without one there is no way back, also for a user
// who was in one. To delete a user again changes nothing else. It returns until when the
// user may be restored, nil for not at all, and whether the call has changed that. Errors:
// NotFound; Conflict for a grace period of a user who is suspended.
//
// Cost: a short transaction, a job or two, and one message to each process.
func (s *Sessions) Delete(ctx context.Context, id int64, grace time.Duration) (until *time.Time, changed bool, err error) {
	err = rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
		until, changed = nil, false
		if err := lockUser(ctx, tx, id); err != nil {
			return err
		}
		row, err := tx.HiddenUser.Get(ctx, id)
		if err != nil && !ent.IsNotFound(err) {
			return fmt.Errorf("find hidden user: %w", err)
		}
		suspended := row != nil && row.State == hiddenuser.StateSUSPENDED
		if suspended && grace > 0 {
			return refusal.New(refusal.SuspendedKept, "The account is suspended: it can be deleted without a grace period alone.")
		}
		if row != nil && !suspended && (row.State != hiddenuser.StateLEAVING || grace > 0) {
			if row.State == hiddenuser.StateLEAVING {
				until = &row.DueAt
			}
			return nil
		}
		state, due := hiddenuser.StateDELETING, s.now()
		if changed = true; grace > 0 {
			state, due = hiddenuser.StateLEAVING, due.Add(grace).Truncate(time.Millisecond)
			until = &due
		}
		if err := tx.User.UpdateOneID(id).SetHidden(true).SetSignedOutBefore(s.now()).Exec(ctx); err != nil {
			return fmt.Errorf("hide user: %w", err)
		}
		if row == nil {
			if err := tx.HiddenUser.Create().SetID(id).SetState(state).SetDueAt(due).Exec(ctx); err != nil {
				return fmt.Errorf("hide user: %w", err)
			}
			if err := s.stale(ctx, tx, id); err != nil {
				return err
			}
		}
		if grace <= 0 {
			if err := s.beginDeletion(ctx, tx, id); err != nil {
				return err
			}
		}
		_, err = deleteSessions(ctx, tx.Session, session.UserID(id))
		return err
	})
	s.cfg.Visibility.Narrowed()
	if err != nil {
		return nil, false, err
	}
	if changed {
		s.tellSeveral(ctx, id)
	}
	return until, changed, nil
}

// lockUser locks the row of a user. Error: NotFound.
func lockUser(ctx context.Context, tx *ent.Tx, id int64) error {
	_, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return refusal.ErrNoSuchUser
	}
	return rows.Wrap("lock user", err)
}

// stale has the inboxes of the user's followers read anew, and the followers told.
func (s *Sessions) stale(ctx context.Context, tx *ent.Tx, id int64) error {
	return s.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.AuthorStale, job.Post{Author: id})
}

// beginDeletion passes the point of no return, under a lock on the user's row.
func (s *Sessions) beginDeletion(ctx context.Context, tx *ent.Tx, id int64) error {
	u, err := tx.User.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("begin to delete user: %w", err)
	}
	row := tx.HiddenUser.UpdateOneID(id).SetState(hiddenuser.StateDELETING).SetDueAt(s.now())
	if u.Issuer != nil {
		key := sessionKey(*u.Issuer, string(u.ExternalID))
		row.SetIdentity(key[:])
	}
	if err := row.Exec(ctx); err != nil {
		return fmt.Errorf("begin to delete user: %w", err)
	}
	if err := s.cfg.Webhooks.User(ctx, tx, webhook.UserDeleted, u); err != nil {
		return err
	}
	return s.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.UserDeleted, job.User{User: id})
}

// restore shows a user again, whose row is locked, and reports whether the user was hidden.
// Errors: Forbidden for one who is suspended; Unauthenticated, as of a wrong password, when
// it is too late.
func (s *Sessions) restore(ctx context.Context, tx *ent.Tx, u *ent.User) (bool, error) {
	if !u.Hidden {
		return false, nil
	}
	n, err := tx.HiddenUser.Delete().Where(hiddenuser.ID(u.ID), hiddenuser.StateEQ(hiddenuser.StateLEAVING)).Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("restore user: %w", err)
	}
	if n == 0 {
		suspended, err := tx.HiddenUser.Query().Where(hiddenuser.ID(u.ID), hiddenuser.StateEQ(hiddenuser.StateSUSPENDED)).Exist(ctx)
		if err == nil && suspended {
			err = errSuspended
		} else if err == nil {
			err = errWrong
		}
		return false, err
	}
	if err := tx.User.UpdateOneID(u.ID).SetHidden(false).Exec(ctx); err != nil {
		return false, fmt.Errorf("restore user: %w", err)
	}
	u.Hidden = false
	return true, s.stale(ctx, tx, u.ID)
}

// Restore calls the deletion of a user off, as LogIn does, and reports whether there was
// one. Errors: NotFound; Forbidden for a user who is suspended; Conflict when it is too late.
//
// Cost: a short transaction, and a job.
func (s *Sessions) Restore(ctx context.Context, id int64) (restored bool, err error) {
	err = rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) {
			return refusal.ErrNoSuchUser
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		restored, err = s.restore(ctx, tx, u)
		if errors.Is(err, errWrong) {
			return refusal.New(refusal.BeingDeleted, "The account is being deleted already.")
		}
		return err
	})
	return restored, err
}

// Named is Directory.Named of anybody, hidden or not.
//
// Cost: two look-ups by index.
func (s *Sessions) Named(ctx context.Context, name string) (*ent.User, error) {
	return named(ctx, s.cfg.DB, s.cfg.DB.User.Query, name)
}

// DeleteExternal is Delete without a grace period of the user with the id at the issuer. It
// reports whether there was such a user who was not being deleted yet.
//
// Cost: a look-up by index, and that of Delete.
func (s *Sessions) DeleteExternal(ctx context.Context, issuer, externalID string) (deleted bool, err error) {
	id, err := s.cfg.DB.User.Query().Where(user.Issuer(issuer), user.ExternalID([]byte(externalID))).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find user: %w", err)
	}
	if _, deleted, err = s.Delete(ctx, id, 0); refusal.CodeOf(err) == refusal.NotFound { // gone since
		err = nil
	}
	return deleted, err
}

// BeginDeletions begins to delete those users whose grace period is over, a hundred at
// most, and reports how many.
//
// Cost: an index range, and a short transaction and a job for each.
func (s *Sessions) BeginDeletions(ctx context.Context) (int, error) {
	ids, err := s.cfg.DB.HiddenUser.Query().Where(hiddenuser.DueAtLTE(s.now()), hiddenuser.StateEQ(hiddenuser.StateLEAVING)).
		Order(ent.Asc(hiddenuser.FieldDueAt)).Limit(100).IDs(ctx)
	if err != nil {
		return 0, fmt.Errorf("find users to delete: %w", err)
	}
	begun := 0
	for _, id := range ids {
		before := begun
		err := rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
			if err := lockUser(ctx, tx, id); err != nil {
				return err
			}
			// Another process may have begun, or a log-in restored the user.
			still, err := tx.HiddenUser.Query().Where(hiddenuser.ID(id), hiddenuser.StateEQ(hiddenuser.StateLEAVING),
				hiddenuser.DueAtLTE(s.now())).Exist(ctx)
			if err != nil || !still {
				return err
			}
			begun = before + 1
			return s.beginDeletion(ctx, tx, id)
		})
		if err != nil {
			return before, err
		}
	}
	return begun, nil
}

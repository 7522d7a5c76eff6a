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

// DELETION.md describes how an account is deleted, step by step.

// FreshToken is the maximum age of an issuer's token that confirms the deletion or the export of
// an account without a password.
const FreshToken = 10 * time.Minute

// Confirm checks again who the viewer is: with the password, if the account has one, or with a
// token that the issuer signed within FreshToken. It accepts every call with an API key, because
// the server that makes the call decides for itself. Errors: Unauthenticated, Forbidden.
//
// Cost: none with a fresh token or an API key; otherwise a look-up, and one password hash, as
// LogIn, if the account has a password.
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
	case u.Issuer != nil: // without a password, only a token of the issuer signs in
		return refusal.New(refusal.TokenWithoutIat, "The token must be of the last %d minutes, and has no claim iat that says when it was issued.", minutes)
	}
	return refusal.New(refusal.NoPassword, "This account has no password.")
}

// DeleteAccount confirms the viewer with Confirm and then calls Delete with the configured grace
// period. It returns the time until which LogIn restores the account, or nil if it cannot be
// restored. Errors: Unauthenticated, Forbidden.
//
// Cost: Confirm and Delete.
func (a *Accounts) DeleteAccount(ctx context.Context, v Viewer, password string) (*time.Time, error) {
	if err := a.Confirm(ctx, v, password); err != nil {
		return nil, err
	}
	until, _, err := a.Delete(ctx, v.ID, a.cfg.Grace)
	return until, err
}

// Delete hides a user from everybody and ends all sessions, as SignOut does. A job deletes the
// user after the grace period. Without a grace period the deletion begins at once and cannot be
// undone, also for a user who was in a grace period. Otherwise, deleting a user again changes
// nothing. Delete returns the time until which the user can be restored, or nil if there is no
// way back, and whether the call changed anything. Errors: NotFound; Conflict for a grace period
// if the user is suspended.
//
// Cost: a short transaction, one or two jobs, and one message to each process.
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
	s.cfg.Visibility.VisibilityReduced()
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

// stale enqueues the job that marks the inboxes of the user's followers as missing and tells the
// followers to read again.
func (s *Sessions) stale(ctx context.Context, tx *ent.Tx, id int64) error {
	return s.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.AuthorStale, job.Post{Author: id})
}

// beginDeletion begins the deletion, which cannot be undone afterwards. The user's row must be
// locked.
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

// restore shows a hidden user again, and reports whether the user was hidden. The user's row must
// be locked. Errors: Forbidden if the user is suspended; Unauthenticated, as for a wrong
// password, if the deletion has begun.
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

// Restore cancels the deletion of a user, as LogIn does, and reports whether the user was hidden.
// Errors: NotFound; Forbidden for a suspended user; Conflict if the deletion has begun.
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

// Named finds a user as Directory.Named does, hidden or not.
//
// Cost: two look-ups by index.
func (s *Sessions) Named(ctx context.Context, name string) (*ent.User, error) {
	return named(ctx, s.cfg.DB, s.cfg.DB.User.Query, name)
}

// DeleteExternal deletes, without a grace period, the user with the external id at the issuer. It
// reports whether there was such a user whose deletion had not begun yet.
//
// Cost: a look-up by index, and Delete.
func (s *Sessions) DeleteExternal(ctx context.Context, issuer, externalID string) (deleted bool, err error) {
	id, err := s.cfg.DB.User.Query().Where(user.Issuer(issuer), user.ExternalID([]byte(externalID))).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find user: %w", err)
	}
	if _, deleted, err = s.Delete(ctx, id, 0); refusal.CodeOf(err) == refusal.NotFound { // the user has gone since
		err = nil
	}
	return deleted, err
}

// BeginDeletions begins the deletion of users whose grace period is over, at most a hundred, and
// returns how many.
//
// Cost: an index range, and a short transaction and a job for each user.
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
			// Another process may have begun the deletion, or a log-in may have restored the
			// user.
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

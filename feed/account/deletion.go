package account

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/errs"
	"tideline/queue"
)

// DELETION.md describes how an account is deleted, step by step.

// Delete hides a user from everybody and ends all sessions, as SignOut does. A job deletes the
// user after the grace period. Without a grace period the deletion begins at once and cannot be
// undone, also for a user who was in a grace period. Otherwise, deleting a user again changes
// nothing. Delete returns the time until which the user can be restored, or nil if there is no
// way back, and whether the call changed anything. Errors: NotFound; Conflict for a grace period
// if the user is suspended.
//
// Cost: a short transaction, one or two jobs, and one message to each process.
func (a *Accounts) Delete(ctx context.Context, id int64, grace time.Duration) (until *time.Time, changed bool, err error) {
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
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
			return refusal.New(refusal.SuspendedKept, "The account is suspended: it can only be deleted without a grace period.")
		}
		if row != nil && !suspended && (row.State != hiddenuser.StateLEAVING || grace > 0) {
			if row.State == hiddenuser.StateLEAVING {
				until = &row.DueAt
			}
			return nil
		}
		state, due := hiddenuser.StateDELETING, a.now()
		if changed = true; grace > 0 {
			state, due = hiddenuser.StateLEAVING, due.Add(grace).Truncate(time.Millisecond)
			until = &due
		}
		if err := tx.User.UpdateOneID(id).SetHidden(true).Exec(ctx); err != nil {
			return fmt.Errorf("hide user: %w", err)
		}
		if row == nil {
			if err := tx.HiddenUser.Create().SetID(id).SetState(state).SetDueAt(due).Exec(ctx); err != nil {
				return fmt.Errorf("hide user: %w", err)
			}
			if err := a.enqueueAuthorStale(ctx, tx, id); err != nil {
				return err
			}
		}
		if grace <= 0 {
			if err := a.beginDeletion(ctx, tx, id); err != nil {
				return err
			}
		}
		_, err = a.cfg.Sessions.EndAll(ctx, tx, id, 0)
		return err
	})
	// The commit may have succeeded even if it returned an error.
	a.cfg.Visibility.VisibilityReduced()
	if err != nil {
		return nil, false, err
	}
	if changed {
		a.cfg.Sessions.TellEnded(ctx, id)
	}
	return until, changed, nil
}

// lockUser locks the row of a user. Error: NotFound.
func lockUser(ctx context.Context, tx *ent.Tx, id int64) error {
	_, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return refusal.ErrNoSuchUser
	}
	return errs.Wrap(err, "lock user")
}

// enqueueAuthorStale enqueues the job that marks the inboxes of the user's followers as missing and tells the
// followers to read again. If replies, reposts or quotes depend on the user's posts, that job enqueues the
// job that tells of them.
func (a *Accounts) enqueueAuthorStale(ctx context.Context, tx *ent.Tx, id int64) error {
	return a.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.AuthorStale, job.Post{Author: id})
}

// beginDeletion begins the deletion, which cannot be undone afterwards. The user's row must be
// locked.
func (a *Accounts) beginDeletion(ctx context.Context, tx *ent.Tx, id int64) error {
	u, err := tx.User.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("begin to delete user: %w", err)
	}
	row := tx.HiddenUser.UpdateOneID(id).SetState(hiddenuser.StateDELETING).SetDueAt(a.now()).SetReason("").ClearSuspendedUntil()
	if u.Issuer != nil {
		hash := session.HashOfIssuer(*u.Issuer, string(u.ExternalID))
		row.SetIdentity(hash[:])
	}
	if err := row.Exec(ctx); err != nil {
		return fmt.Errorf("begin to delete user: %w", err)
	}
	if err := a.cfg.Webhooks.User(ctx, tx, webhook.UserDeleted, u); err != nil {
		return err
	}
	return a.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.UserDeleted, job.User{User: id})
}

// RestoreIn shows a hidden user again in tx, and reports whether the user was hidden. The caller
// has locked the user's row. A suspension whose time is over is ended, too. Errors: Forbidden if the user is
// suspended, with the reason and the end of the suspension; Conflict if the deletion has begun.
//
// Cost: none unless the user is hidden; otherwise a deletion and an update by primary key, and a
// job.
func (a *Accounts) RestoreIn(ctx context.Context, tx *ent.Tx, u *ent.User) (restored bool, err error) {
	if !u.Hidden {
		return false, nil
	}
	n, err := tx.HiddenUser.Delete().Where(hiddenuser.ID(u.ID), hiddenuser.Or(hiddenuser.StateEQ(hiddenuser.StateLEAVING),
		hiddenuser.And(hiddenuser.StateEQ(hiddenuser.StateSUSPENDED), hiddenuser.SuspendedUntilLTE(a.now())))).Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("restore user: %w", err)
	}
	if n == 0 {
		row, err := tx.HiddenUser.Query().Where(hiddenuser.ID(u.ID), hiddenuser.StateEQ(hiddenuser.StateSUSPENDED)).Only(ctx)
		if err == nil {
			err = refusal.New(refusal.Suspended, "This account is suspended.").Because(row.Reason).Ends(row.SuspendedUntil)
		} else if ent.IsNotFound(err) {
			err = refusal.New(refusal.BeingDeleted, "The account is being deleted already.")
		}
		return false, err
	}
	if err := tx.User.UpdateOneID(u.ID).SetHidden(false).Exec(ctx); err != nil {
		return false, fmt.Errorf("restore user: %w", err)
	}
	u.Hidden = false
	return true, a.enqueueAuthorStale(ctx, tx, u.ID)
}

// Restore cancels the deletion of a user, as login.Login.LogIn does, and reports whether the user
// was hidden. Errors: NotFound; Forbidden for a suspended user; Conflict if the deletion has begun.
//
// Cost: a short transaction, and a job.
func (a *Accounts) Restore(ctx context.Context, id int64) (restored bool, err error) {
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) {
			return refusal.ErrNoSuchUser
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		restored, err = a.RestoreIn(ctx, tx, u)
		return err
	})
	return restored, err
}

// Named finds a user as Directory.Named does, hidden or not.
//
// Cost: two look-ups by index.
func (a *Accounts) Named(ctx context.Context, name string) (*ent.User, error) {
	return named(ctx, a.cfg.DB, a.cfg.DB.User.Query, name)
}

// DeleteExternal deletes, without a grace period, the user with the external id at the issuer. It
// reports whether there was such a user whose deletion had not begun yet.
//
// Cost: a look-up by index, and Delete.
func (a *Accounts) DeleteExternal(ctx context.Context, issuer, externalID string) (deleted bool, err error) {
	id, err := a.cfg.DB.User.Query().Where(user.Issuer(issuer), user.ExternalID([]byte(externalID))).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find user: %w", err)
	}
	if _, deleted, err = a.Delete(ctx, id, 0); refusal.CodeOf(err) == refusal.NotFound { // the user has gone since
		err = nil
	}
	return deleted, err
}

// DeletedAfter reports whether the user with this session.HashOfIssuer was deleted within the last
// three hours, after the given time.
//
// Cost: a look-up by index.
func (a *Accounts) DeletedAfter(ctx context.Context, identity session.Hash, at time.Time) (bool, error) {
	// The row is due tracesFor after the end of the deletion.
	found, err := a.cfg.DB.HiddenUser.Query().Where(hiddenuser.Identity(identity[:]), hiddenuser.StateEQ(hiddenuser.StateGONE),
		hiddenuser.DueAtGT(at.Add(tracesFor).UTC())).Exist(ctx)
	return found, errs.Wrap(err, "find deleted user")
}

// BeginDeletions begins the deletion of users whose grace period is over, at most a hundred, and
// returns how many.
//
// Cost: an index range, and a short transaction and a job for each user.
func (a *Accounts) BeginDeletions(ctx context.Context) (int, error) {
	ids, err := a.cfg.DB.HiddenUser.Query().Where(hiddenuser.DueAtLTE(a.now()), hiddenuser.StateEQ(hiddenuser.StateLEAVING)).
		Order(ent.Asc(hiddenuser.FieldDueAt)).Limit(100).IDs(ctx)
	if err != nil {
		return 0, fmt.Errorf("find users to delete: %w", err)
	}
	begun := 0
	for _, id := range ids {
		before := begun
		err := rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
			if err := lockUser(ctx, tx, id); err != nil {
				return err
			}
			// Another process may have begun the deletion, or a log-in may have restored the
			// user.
			still, err := tx.HiddenUser.Query().Where(hiddenuser.ID(id), hiddenuser.StateEQ(hiddenuser.StateLEAVING),
				hiddenuser.DueAtLTE(a.now())).Exist(ctx)
			if err != nil || !still {
				return err
			}
			begun = before + 1
			return a.beginDeletion(ctx, tx, id)
		})
		if err != nil {
			return before, err
		}
	}
	return begun, nil
}

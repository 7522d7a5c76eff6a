package account

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/refusal"
	"tideline/internal/errs"
)

// never is HiddenUser.due_at of a suspended user whose account is not going to be deleted.
var never = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// Suspension has the reason and the end of a suspension. The user reads both at a log-in.
type Suspension struct {
	// Reason is why, in words for the user; it may be empty.
	Reason string
	// Until is when the suspension ends by itself. Nil means that only Unsuspend ends it.
	Until *time.Time
}

// MaxReason bounds the characters of the reason of a suspension.
const MaxReason = 1000

var reasonField = text.Field{What: "The reason", Name: "reason", Limit: "reasonLength", Most: MaxReason}

// Clean brings the suspension into the form that is stored, with the end in milliseconds. Error: BadInput.
func (s *Suspension) Clean() (err error) {
	if s.Until != nil {
		s.Until = new(s.Until.UTC().Truncate(time.Millisecond))
	}
	s.Reason, err = reasonField.Clean(s.Reason)
	return err
}

// SuspensionOf returns the suspension of a suspended user.
func SuspensionOf(row *ent.HiddenUser) Suspension { return Suspension{row.Reason, row.SuspendedUntil} }

// Suspend hides a user from everybody until Unsuspend or s.Until, and ends all sessions, as
// session.Store.SignOut does. A log-in shows the user s, which the caller has cleaned. If the user is in the
// grace period of a deletion, the end of the period stays, but the deletion does not begin while the user is suspended. Suspending a
// suspended user changes nothing. Otherwise Suspend first calls allow, in the transaction, with the user's
// locked row. Errors: NotFound, also for a user whose deletion has begun, and any error of allow.
//
// Cost: a short transaction, which deletes the user's sessions; one message to each process; and a
// job, unless the user was hidden before.
func (a *Accounts) Suspend(ctx context.Context, id int64, s Suspension, allow func(*ent.Tx, *ent.User) error) (changed bool, err error) {
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		changed = false
		u, row, err := lockForSuspension(ctx, tx, id)
		if err != nil || row != nil && row.State == hiddenuser.StateSUSPENDED {
			return err
		}
		if err := allow(tx, u); err != nil {
			return err
		}
		changed = true
		if err := tx.User.UpdateOneID(id).SetHidden(true).Exec(ctx); err != nil {
			return fmt.Errorf("suspend user: %w", err)
		}
		if row != nil {
			err = tx.HiddenUser.UpdateOneID(id).SetState(hiddenuser.StateSUSPENDED).SetReason(s.Reason).SetNillableSuspendedUntil(s.Until).Exec(ctx)
		} else if err = tx.HiddenUser.Create().SetID(id).SetState(hiddenuser.StateSUSPENDED).SetDueAt(never).SetReason(s.Reason).SetNillableSuspendedUntil(s.Until).Exec(ctx); err == nil {
			err = a.enqueueAuthorStale(ctx, tx, id)
		}
		if err != nil {
			return fmt.Errorf("suspend user: %w", err)
		}
		_, err = a.cfg.Sessions.EndAll(ctx, tx, id, 0)
		return err
	})
	// The commit may have succeeded even if it returned an error.
	a.cfg.Visibility.VisibilityReduced()
	if err != nil {
		return false, err
	}
	if changed {
		a.cfg.Sessions.TellEnded(ctx, id)
	}
	return changed, nil
}

// Unsuspend ends a suspension and shows the user again. A user who was in the grace period of a
// deletion stays hidden and returns to that period, with the same end. If the end has passed, the
// deletion begins soon. If the user is not suspended, nothing changes. Otherwise Unsuspend first calls
// allow, as Suspend does. Errors: NotFound, also for a user whose deletion has begun, and any error
// of allow.
//
// Cost: a short transaction; and a job, if the user is shown again.
func (a *Accounts) Unsuspend(ctx context.Context, id int64, allow func(*ent.Tx, *ent.User) error) (changed bool, err error) {
	return a.unsuspend(ctx, id, func(*ent.HiddenUser) bool { return true }, allow)
}

// unsuspend is Unsuspend, for a suspension that matches.
func (a *Accounts) unsuspend(ctx context.Context, id int64, matches func(*ent.HiddenUser) bool, allow func(*ent.Tx, *ent.User) error) (changed bool, err error) {
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		changed = false
		u, row, err := lockForSuspension(ctx, tx, id)
		if err != nil || row == nil || row.State != hiddenuser.StateSUSPENDED || !matches(row) {
			return err
		}
		if err := allow(tx, u); err != nil {
			return err
		}
		changed = true
		if !row.DueAt.Equal(never) {
			return errs.Wrap(tx.HiddenUser.UpdateOneID(id).SetState(hiddenuser.StateLEAVING).SetReason("").ClearSuspendedUntil().Exec(ctx), "unsuspend user")
		}
		if err := tx.HiddenUser.DeleteOneID(id).Exec(ctx); err != nil {
			return fmt.Errorf("unsuspend user: %w", err)
		}
		if err := tx.User.UpdateOneID(id).SetHidden(false).Exec(ctx); err != nil {
			return fmt.Errorf("unsuspend user: %w", err)
		}
		return a.enqueueAuthorStale(ctx, tx, id)
	})
	return changed && err == nil, err
}

// EndSuspensions ends the suspensions whose time is over, at most a hundred, and returns how many. The audit
// log has no entry of it: the entry of the suspension names the time.
//
// Cost: an index range, and the cost of Unsuspend for each user.
func (a *Accounts) EndSuspensions(ctx context.Context) (ended int, err error) {
	over := hiddenuser.SuspendedUntilLTE(a.now())
	ids, err := a.cfg.DB.HiddenUser.Query().Where(over, hiddenuser.StateEQ(hiddenuser.StateSUSPENDED)).
		Order(ent.Asc(hiddenuser.FieldSuspendedUntil)).Limit(100).IDs(ctx)
	if err != nil {
		return 0, fmt.Errorf("find suspensions that are over: %w", err)
	}
	for _, id := range ids {
		// Since the query a moderator may have ended the suspension and suspended the user anew.
		changed, err := a.unsuspend(ctx, id, func(row *ent.HiddenUser) bool {
			return row.SuspendedUntil != nil && !row.SuspendedUntil.After(a.now())
		}, func(*ent.Tx, *ent.User) error { return nil })
		switch {
		case refusal.CodeOf(err) == refusal.NotFound: // the deletion has begun
		case err != nil:
			return ended, err
		case changed:
			ended++
		}
	}
	return ended, nil
}

// lockForSuspension locks the row of a user and returns it with the user's row of HiddenUser, which is
// nil if the user is not hidden. Error: NotFound, also if the deletion of the user has begun.
func lockForSuspension(ctx context.Context, tx *ent.Tx, id int64) (*ent.User, *ent.HiddenUser, error) {
	u, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, nil, refusal.ErrNoSuchUser
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lock user: %w", err)
	}
	row, err := tx.HiddenUser.Get(ctx, id)
	if ent.IsNotFound(err) {
		return u, nil, nil
	}
	if err == nil && row.State != hiddenuser.StateLEAVING && row.State != hiddenuser.StateSUSPENDED {
		return nil, nil, refusal.ErrNoSuchUser
	}
	return u, row, errs.Wrap(err, "find hidden user")
}

// SuspendNew suspends new users, by id, whose rows the transaction has written with hidden set. Nobody
// has seen them and they have no sessions, so it tells nobody and ends nothing.
//
// Cost: one insert.
func SuspendNew(ctx context.Context, tx *ent.Tx, users map[int64]Suspension) error {
	if len(users) == 0 {
		return nil
	}
	var create []*ent.HiddenUserCreate
	for id, s := range users {
		create = append(create, tx.HiddenUser.Create().SetID(id).SetState(hiddenuser.StateSUSPENDED).SetDueAt(never).SetReason(s.Reason).SetNillableSuspendedUntil(s.Until))
	}
	return errs.Wrap(tx.HiddenUser.CreateBulk(create...).Exec(ctx), "suspend new users")
}

// Leaves reports whether the account of a hidden user is deleted, is being deleted, or is going to be
// deleted, even if a suspension delays the deletion.
func Leaves(row *ent.HiddenUser) bool {
	return row.State != hiddenuser.StateSUSPENDED || !row.DueAt.Equal(never)
}

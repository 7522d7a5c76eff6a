// Package account manages the accounts of users: their profiles, handles and visibility to others,
// the search for users, and the export and deletion of all their data.
//
// It does not know how users log in: package login does. It ends the sessions of users who are
// hidden.
package account

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/errs"
	"tideline/queue"
)

// Config configures Accounts. Fields are required unless they have a default.
type Config struct {
	DB       *ent.Client
	Sessions *session.Store // ends the sessions of hidden users
	Queue    *queue.Queue   // runs the jobs that delete accounts
	// Visibility reevaluates its verdicts when a user is hidden.
	Visibility *visibility.Reader
	// Avatars lists the hosts that avatar URLs may name. Defaults to none.
	Avatars AvatarHosts
	// Webhooks records events for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Accounts changes accounts. It is safe for concurrent use.
type Accounts struct{ cfg Config }

// New returns Accounts. It fails if a required field is missing.
func New(cfg Config) (*Accounts, error) {
	if cfg.DB == nil || cfg.Sessions == nil || cfg.Queue == nil || cfg.Visibility == nil {
		return nil, errors.New("accounts: DB, Sessions, Queue and Visibility are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Accounts{cfg}, nil
}

// now returns UTC, because SQLite compares times as text.
func (a *Accounts) now() time.Time { return a.cfg.Now().UTC() }

// lockViewer locks the viewer's row. Error: Unauthenticated, also if the viewer is hidden, which an
// API key may not know yet.
func lockViewer(ctx context.Context, tx *ent.Tx, v session.Viewer) error {
	_, err := tx.User.Query().Where(user.ID(v.ID), user.Hidden(false), rows.ForUpdate).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return refusal.ErrSignIn
	}
	return errs.Wrap(err, "lock user")
}

// ChangeHandle changes the viewer's handle. The former handle is free at once: a look-up finds
// nobody, or another user who has taken it. Errors: Unauthenticated, BadInput; Conflict if the
// new handle is taken.
//
// Cost: a lock, an update and a look-up by primary key, and KeepNames.
func (a *Accounts) ChangeHandle(ctx context.Context, v session.Viewer, handle string) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	handle, err := Handle(handle)
	if err != nil {
		return nil, err
	}
	var u *ent.User
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		if err := lockViewer(ctx, tx, v); err != nil {
			return err
		}
		err := tx.User.Update().Where(user.ID(v.ID)).SetHandle(handle).Exec(ctx)
		if ent.IsConstraintError(err) {
			return refusal.New(refusal.HandleTaken, "The handle @%s is taken.", handle).In("handle")
		}
		if err == nil {
			u, err = tx.User.Query().Where(user.ID(v.ID), rows.WithFollows).Only(ctx)
		}
		if err != nil {
			return fmt.Errorf("change handle: %w", err)
		}
		if err := KeepNames(ctx, tx, u); err != nil {
			return err
		}
		return a.cfg.Webhooks.User(ctx, tx, webhook.UserUpdated, u)
	})
	return u, err
}

// Profile is a change of a user's own profile. Fields that are nil do not change.
type Profile struct {
	Name, Bio         *string
	AvatarURL         *string  // empty removes the picture
	Links             []string // replaces all links; nil keeps them
	Data              *string  // replaces the app's own fields, a JSON object
	DefaultVisibility *schema.Visibility
	ApprovesFollowers *bool
	HomeReplies       *schema.HomeReplies
}

// setHomeReplies enqueues the job that tells the user's devices to read again, if the setting changes.
func (a *Accounts) setHomeReplies(ctx context.Context, tx *ent.Tx, id int64, to schema.HomeReplies) error {
	same, err := tx.User.Query().Where(user.ID(id), user.HomeRepliesEQ(to)).Exist(ctx)
	if err != nil || same {
		return errs.Wrap(err, "read home replies")
	}
	return a.cfg.Queue.Enqueue(ctx, tx, queue.Relations, job.WordsChanged, job.Words{User: id, Change: rand.Int64()})
}

// UpdateProfile changes the viewer's profile. Errors: Unauthenticated, BadInput.
//
// Cost: a lock, one update and one look-up by primary key, one more update for the data, and
// KeepNames for another name.
func (a *Accounts) UpdateProfile(ctx context.Context, v session.Viewer, p Profile) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	var u *ent.User
	err := rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		// An update that sets no column does not lock the row. Without the lock, the webhook
		// could send a profile that a concurrent call is about to change.
		if err := lockViewer(ctx, tx, v); err != nil {
			return err
		}
		change := tx.User.Update().Where(user.ID(v.ID))
		if p.HomeReplies != nil {
			if err := a.setHomeReplies(ctx, tx, v.ID, *p.HomeReplies); err != nil {
				return err
			}
			change.SetHomeReplies(*p.HomeReplies)
		}
		if p.Name != nil {
			name, err := NameField.CleanLine(*p.Name)
			if err != nil {
				return err
			}
			change.SetName(name)
		}
		if p.Bio != nil {
			bio, err := BioField.Clean(*p.Bio)
			if err != nil {
				return err
			}
			change.SetBio(bio)
		}
		if p.AvatarURL != nil {
			address, err := a.cfg.Avatars.clean(*p.AvatarURL)
			if err != nil {
				return err
			}
			change.SetAvatarURL(address)
		}
		if p.Links != nil {
			links, err := CleanLinks(p.Links)
			if err != nil {
				return err
			}
			change.SetLinks(links)
		}
		change.SetNillableDefaultVisibility(p.DefaultVisibility).SetNillableApprovesFollowers(p.ApprovesFollowers)
		var err error
		if err = change.Exec(ctx); err == nil {
			u, err = tx.User.Query().Where(user.ID(v.ID), rows.WithFollows).Only(ctx)
		}
		if err != nil {
			return fmt.Errorf("update profile: %w", err)
		}
		if p.Name != nil {
			if err := KeepNames(ctx, tx, u); err != nil {
				return err
			}
		}
		if p.Data != nil {
			data, err := text.Data(*p.Data)
			if err != nil {
				return err
			}
			if err := rows.KeepUserData(ctx, tx, v.ID, data); err != nil {
				return err
			}
			u.Data = &data
		}
		return a.cfg.Webhooks.User(ctx, tx, webhook.UserUpdated, u)
	})
	return u, err
}

// Package account manages users: their accounts, their sessions, and the search for users.
package account

import (
	"context"
	"errors"
	"fmt"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
)

// Config configures Accounts. Fields are required unless they have a default.
type Config struct {
	Sessions *Sessions
	IDs      *ids.Generator // generates the ids of users
	// Issuers verifies the tokens of other issuers. Defaults to none.
	Issuers *identity.Verifier
	// NoSignUp turns off accounts with a password. NoPasswords also turns off log-in with a
	// password, and rejects the tokens of sessions that began with one.
	NoSignUp, NoPasswords bool
	// Avatars lists the hosts that avatar URLs may name. Defaults to none.
	Avatars AvatarHosts
	// Webhooks records events for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox
}

// Accounts creates accounts and logs users in. It is safe for concurrent use.
type Accounts struct {
	*Sessions
	ids       *ids.Generator
	with      Config
	passwords *password.Hasher
}

// New returns Accounts. It fails if a required field is missing.
func New(c Config) (*Accounts, error) {
	if c.Sessions == nil || c.IDs == nil {
		return nil, errors.New("accounts: Sessions and IDs are required")
	}
	return &Accounts{c.Sessions, c.IDs, c, password.NewHasher()}, nil
}

// SignUp creates an account and starts a session. The name defaults to the handle. Errors:
// BadInput; Conflict if the handle is taken; Forbidden if sign-up is turned off.
//
// Cost: one password hash, of which a process computes few at a time, and a transaction of two
// inserts and KeepNames.
func (a *Accounts) SignUp(ctx context.Context, handle, secret, name string) (*Auth, error) {
	if a.with.NoSignUp || a.with.NoPasswords {
		return nil, refusal.New(refusal.SignUpOff, "This server makes no accounts with a password.")
	}
	handle, err := Handle(handle)
	if err != nil {
		return nil, err
	}
	if err := password.Check("password", secret); err != nil {
		return nil, err
	}
	if name == "" {
		name = handle
	}
	if name, err = NameField.CleanLine(name); err != nil {
		return nil, err
	}
	hash, err := a.passwords.Hash(ctx, secret)
	if err != nil {
		return nil, err
	}
	id, err := a.ids.Next()
	if err != nil {
		return nil, err
	}
	var auth *Auth
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Create().SetID(id).SetHandle(handle).SetName(name).SetPasswordHash(hash).Save(ctx)
		if ent.IsConstraintError(err) {
			return refusal.New(refusal.HandleTaken, "The handle @%s is taken.", handle).In("handle")
		}
		if err != nil {
			return fmt.Errorf("create user: %w", err)
		}
		if err := KeepNames(ctx, tx, u); err != nil {
			return err
		}
		if err := a.with.Webhooks.User(ctx, tx, webhook.UserCreated, u); err != nil {
			return err
		}
		auth, _, err = a.start(ctx, tx.Session, u)
		return err
	})
	return auth, err
}

// LogIn starts a session. It restores an account in the grace period of a deletion, but not an
// account whose deletion has begun. A user has at most MaxSessions sessions; LogIn ends the
// oldest. Errors: Unauthenticated, the same and after the same work for an unknown handle and for
// a wrong password; Forbidden if log-in is turned off, and for the right password of a suspended
// account.
//
// Cost: one password hash, as SignUp, a look-up and a short transaction. If the stored hash has
// other parameters than new hashes, one more hash and an update.
func (a *Accounts) LogIn(ctx context.Context, handle, password string) (*Auth, error) {
	if a.with.NoPasswords {
		return nil, refusal.New(refusal.LogInOff, "Nobody logs in with a password on this server.")
	}
	handle, err := Handle(handle)
	if err != nil {
		handle = "" // no user has an empty handle
	}
	for range 3 { // the hash may change at the same time
		u, err := a.cfg.DB.User.Query().Where(user.Handle(handle)).Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return nil, fmt.Errorf("find user: %w", err)
		}
		stored := ""
		if u != nil {
			stored = u.PasswordHash
		}
		fits, old, err := a.passwords.Verify(ctx, password, stored)
		if err != nil {
			return nil, err
		}
		if !fits || u == nil {
			return nil, errWrong
		}
		if auth, err := a.startVerified(ctx, u); auth != nil || err != nil {
			if err == nil && old {
				a.renewHash(ctx, u, password)
			}
			return auth, err
		}
	}
	return nil, errWrong
}

// errWrong is the same error for an unknown handle and a wrong password.
var errWrong error = refusal.New(refusal.WrongCredentials, "Handle or password is wrong.")

// startVerified starts a session after the password was verified against u.PasswordHash. It
// returns nil if the hash has changed since: ChangePassword ends all existing sessions, so no
// session with the former password may start afterwards.
func (a *Accounts) startVerified(ctx context.Context, u *ent.User) (auth *Auth, err error) {
	ended := 0
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		auth = nil
		now, err := tx.User.Query().Where(user.ID(u.ID), rows.ForUpdate, rows.WithFollows).Only(ctx)
		if ent.IsNotFound(err) || err == nil && now.PasswordHash != u.PasswordHash {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		restored, err := a.restore(ctx, tx, now)
		if err != nil {
			return err
		}
		if auth, ended, err = a.start(ctx, tx.Session, now); auth != nil {
			auth.Restored = restored
		}
		return err
	})
	if err == nil && ended > 0 {
		a.tellSeveral(ctx, u.ID)
	}
	return auth, err
}

// Profile is a change of a user's own profile. Fields that are nil do not change.
type Profile struct {
	Name, Bio         *string
	AvatarURL         *string  // empty removes the picture
	Links             []string // replaces all links; nil keeps them
	Data              *string  // replaces the app's own fields, a JSON object
	DefaultVisibility *schema.Visibility
	ApprovesFollowers *bool
}

// UpdateProfile changes the viewer's profile. Errors: Unauthenticated, BadInput.
//
// Cost: a lock, one update and one look-up by primary key, one more update for the data, and
// KeepNames for another name.
func (a *Accounts) UpdateProfile(ctx context.Context, v Viewer, p Profile) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	var u *ent.User
	err := rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		// An update that sets no column does not lock the row. Without the lock, the webhook
		// could send a profile that a concurrent call is about to change.
		if err := lockUser(ctx, tx, v.ID); refusal.CodeOf(err) == refusal.NotFound {
			return refusal.ErrSignIn
		} else if err != nil {
			return err
		}
		change := tx.User.Update().Where(user.ID(v.ID))
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
			address, err := a.with.Avatars.clean(*p.AvatarURL)
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
		return a.with.Webhooks.User(ctx, tx, webhook.UserUpdated, u)
	})
	return u, err
}

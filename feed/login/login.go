// Package login decides who makes a call: it checks passwords, tokens of issuers and API keys.
//
// It hides which credentials a server accepts. A log-in with a password and a token of an issuer
// lead to a session, which package session keeps. The first token of an issuer's user creates the
// user.
package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/identity"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/password"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
)

// DefaultGrace is the usual Config.Grace. MaxGrace is its upper bound.
const (
	DefaultGrace = 30 * 24 * time.Hour
	MaxGrace     = 8760 * time.Hour
)

// Config configures Login. Fields are required unless they have a default.
type Config struct {
	DB       *ent.Client
	Sessions *session.Store
	Accounts *account.Accounts
	IDs      *ids.Generator // generates the ids of users
	// Keys verifies the credentials of API keys. Defaults to none.
	Keys *apikey.Keys
	// Issuers verifies the tokens of other issuers. Defaults to none.
	Issuers *identity.Verifier
	// NoSignUp turns off accounts with a password. NoPasswords also turns off log-in with a
	// password, and rejects the tokens of sessions that began with one.
	NoSignUp, NoPasswords bool
	// Grace is how long a log-in can restore an account after its user has deleted it. With 0 it
	// cannot be restored.
	Grace time.Duration
	// Webhooks records events for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Login authenticates users. It is safe for concurrent use.
type Login struct {
	cfg       Config
	passwords *password.Hasher
}

// New returns a Login. It fails if a required field is missing.
func New(cfg Config) (*Login, error) {
	if cfg.DB == nil || cfg.Sessions == nil || cfg.Accounts == nil || cfg.IDs == nil {
		return nil, errors.New("login: DB, Sessions, Accounts and IDs are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Login{cfg, password.NewHasher()}, nil
}

// now returns UTC, because SQLite compares times as text.
func (l *Login) now() time.Time { return l.cfg.Now().UTC() }

// Auth is a new session. The server keeps only a hash of the token.
type Auth struct {
	Token     string
	ExpiresAt time.Time
	User      *ent.User
	// Restored says that the account was in the grace period of a deletion and has been restored.
	Restored bool
}

// SignUp creates an account and starts a session. The name defaults to the handle. Errors:
// BadInput; Conflict if the handle is taken; Forbidden if sign-up is turned off.
//
// Cost: one password hash, of which a process computes few at a time, and a transaction of two
// inserts and KeepNames.
func (l *Login) SignUp(ctx context.Context, handle, secret, name string) (*Auth, error) {
	if l.cfg.NoSignUp || l.cfg.NoPasswords {
		return nil, refusal.New(refusal.SignUpOff, "This server makes no accounts with a password.")
	}
	handle, err := account.Handle(handle)
	if err != nil {
		return nil, err
	}
	if err := password.Check("password", secret); err != nil {
		return nil, err
	}
	if name, err = account.NameField.CleanLine(cmp.Or(name, handle)); err != nil {
		return nil, err
	}
	hash, err := l.passwords.Hash(ctx, secret)
	if err != nil {
		return nil, err
	}
	id, err := l.cfg.IDs.Next()
	if err != nil {
		return nil, err
	}
	var auth *Auth
	err = rows.InTx(ctx, l.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Create().SetID(id).SetHandle(handle).SetName(name).SetPasswordHash(hash).Save(ctx)
		if ent.IsConstraintError(err) {
			return refusal.New(refusal.HandleTaken, "The handle @%s is taken.", handle).In("handle")
		}
		if err != nil {
			return fmt.Errorf("create user: %w", err)
		}
		if err := account.KeepNames(ctx, tx, u); err != nil {
			return err
		}
		if err := l.cfg.Webhooks.User(ctx, tx, webhook.UserCreated, u); err != nil {
			return err
		}
		auth, _, err = l.start(ctx, tx, u)
		return err
	})
	return auth, err
}

// LogIn starts a session. It restores an account in the grace period of a deletion, but not an
// account whose deletion has begun. A user has at most session.MaxPerUser sessions; LogIn ends the
// oldest. Errors: Unauthenticated, the same and after the same work for an unknown handle and for
// a wrong password; Forbidden if log-in is turned off, and for the right password of a suspended
// account.
//
// Cost: one password hash, as SignUp, a look-up and a short transaction. If the stored hash has
// other parameters than new hashes, one more hash and an update.
func (l *Login) LogIn(ctx context.Context, handle, password string) (*Auth, error) {
	if l.cfg.NoPasswords {
		return nil, refusal.New(refusal.LogInOff, "Nobody logs in with a password on this server.")
	}
	handle, err := account.Handle(handle)
	if err != nil {
		handle = "" // no user has an empty handle
	}
	for range 3 { // the hash may change at the same time
		u, err := l.cfg.DB.User.Query().Where(user.Handle(handle)).Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return nil, fmt.Errorf("find user: %w", err)
		}
		stored := ""
		if u != nil {
			stored = u.PasswordHash
		}
		fits, old, err := l.passwords.Verify(ctx, password, stored)
		if err != nil {
			return nil, err
		}
		if !fits || u == nil {
			return nil, errWrong
		}
		if auth, err := l.startVerified(ctx, u); auth != nil || err != nil {
			if err == nil && old {
				l.renewHash(ctx, u, password)
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
func (l *Login) startVerified(ctx context.Context, u *ent.User) (auth *Auth, err error) {
	ended := 0
	err = rows.InTx(ctx, l.cfg.DB, func(tx *ent.Tx) error {
		auth = nil
		now, err := tx.User.Query().Where(user.ID(u.ID), rows.ForUpdate, rows.WithFollows).Only(ctx)
		if ent.IsNotFound(err) || err == nil && now.PasswordHash != u.PasswordHash {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		restored, err := l.cfg.Accounts.RestoreIn(ctx, tx, now)
		if refusal.ReasonOf(err) == refusal.BeingDeleted {
			err = errWrong
		}
		if err != nil {
			return err
		}
		if auth, ended, err = l.start(ctx, tx, now); auth != nil {
			auth.Restored = restored
		}
		return err
	})
	if err == nil && ended > 0 {
		l.cfg.Sessions.TellEnded(ctx, u.ID)
	}
	return auth, err
}

// start starts a session of the user. If ended is not zero, the caller must call
// session.Store.TellEnded after the commit.
func (l *Login) start(ctx context.Context, tx *ent.Tx, u *ent.User) (auth *Auth, ended int, err error) {
	token, expires, ended, err := l.cfg.Sessions.Start(ctx, tx, u.ID)
	if err != nil {
		return nil, 0, err
	}
	return &Auth{Token: token, ExpiresAt: expires, User: u}, ended, nil
}

package feed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"

	"tideline/ent"
	"tideline/ent/idempotencykey"
	"tideline/ent/schema"
	"tideline/ent/session"
	"tideline/ent/user"
)

// Viewer is on whose behalf a call is made. The zero Viewer is anonymous.
type Viewer struct {
	ID      int64 // the user's id
	Session int64 // the session's id
}

// Auth is a fresh session: the only time its token is known to the server.
type Auth struct {
	Token     string
	ExpiresAt time.Time
	User      *ent.User
}

// argon2id with the parameters that OWASP's password storage cheat sheet
// recommends as its least: 19 MiB, two passes, one lane.
const (
	argonMemory = 19 * 1024
	argonPasses = 2
	argonLanes  = 1
	argonKey    = 32
	argonSalt   = 16
	argonPrefix = "$argon2id$v=19$m=19456,t=2,p=1$"
)

// SignUp makes an account and signs it in. The name defaults to the handle.
// Errors: BadInput; Conflict when the handle is taken.
//
// Cost: one password hash, of which a process does few at a time, and a transaction
// of two inserts.
func (f *Feed) SignUp(ctx context.Context, handle, password, name string) (*Auth, error) {
	handle, err := cleanHandle(handle)
	if err != nil {
		return nil, err
	}
	if err := checkPassword(password); err != nil {
		return nil, err
	}
	if name == "" {
		name = handle
	}
	if name, err = cleanLine("The name", name, 1, MaxName); err != nil {
		return nil, err
	}
	hash, err := f.hash(ctx, password)
	if err != nil {
		return nil, err
	}
	id, err := f.ids.Next()
	if err != nil {
		return nil, err
	}
	var auth *Auth
	err = f.inTx(ctx, func(tx *ent.Tx) error {
		u, err := tx.User.Create().SetID(id).SetHandle(handle).SetName(name).SetPasswordHash(hash).Save(ctx)
		if ent.IsConstraintError(err) {
			return refuse(Conflict, "The handle @%s is taken.", handle)
		}
		if err != nil {
			return fmt.Errorf("create user: %w", err)
		}
		auth, err = f.startSession(ctx, tx.Session, u)
		return err
	})
	return auth, err
}

// LogIn starts a session. Errors: Unauthenticated, the same for an unknown
// handle as for a wrong password and after the same work.
//
// Cost: one password hash, as SignUp, a look-up and an insert.
func (f *Feed) LogIn(ctx context.Context, handle, password string) (*Auth, error) {
	refusal := refuse(Unauthenticated, "Handle or password is wrong.")
	var u *ent.User
	handle, err := cleanHandle(handle)
	if err == nil {
		u, err = f.db.User.Query().Where(user.Handle(handle)).Only(ctx)
		if err != nil && !ent.IsNotFound(err) {
			return nil, fmt.Errorf("find user: %w", err)
		}
	}
	stored := f.dummyHash
	if u != nil {
		stored = u.PasswordHash
	}
	ok, err := f.verify(ctx, password, stored)
	if err != nil {
		return nil, err
	}
	if !ok || u == nil {
		return nil, refusal
	}
	return f.startSession(ctx, f.db.Session, u)
}

func (f *Feed) startSession(ctx context.Context, sessions *ent.SessionClient, u *ent.User) (*Auth, error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	token := base64.RawURLEncoding.EncodeToString(raw)
	expires := f.now().Add(f.cfg.SessionTTL).UTC().Truncate(time.Millisecond)
	if err := sessions.Create().SetTokenHash(tokenHash(token)).SetUserID(u.ID).SetExpiresAt(expires).Exec(ctx); err != nil {
		return nil, fmt.Errorf("start session: %w", err)
	}
	return &Auth{Token: token, ExpiresAt: expires, User: u}, nil
}

func tokenHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// Authenticate returns whose session the token is and when it ends. Error:
// Unauthenticated for a token that is unknown, expired or logged out.
//
// Cost: one look-up by index.
func (f *Feed) Authenticate(ctx context.Context, token string) (Viewer, time.Time, error) {
	s, err := f.db.Session.Query().
		Where(session.TokenHash(tokenHash(token)), session.ExpiresAtGT(f.now())).Only(ctx)
	if ent.IsNotFound(err) {
		return Viewer{}, time.Time{}, refuse(Unauthenticated, "The session has ended. Log in again.")
	}
	if err != nil {
		return Viewer{}, time.Time{}, fmt.Errorf("find session: %w", err)
	}
	return Viewer{ID: s.UserID, Session: s.ID}, s.ExpiresAt, nil
}

// LogOut ends the viewer's session and the subscriptions that were opened with
// it, on every process. Error: Unauthenticated.
//
// Cost: one deletion by primary key, and one message a process.
func (f *Feed) LogOut(ctx context.Context, v Viewer) error {
	if v.ID == 0 {
		return errSignIn
	}
	if _, err := f.db.Session.Delete().Where(session.ID(v.Session), session.UserID(v.ID)).Exec(ctx); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	f.announceLogOut(ctx, v)
	return nil
}

// EndedSessions are those of the sessions that were logged out or have expired.
// It costs one query.
func (f *Feed) EndedSessions(ctx context.Context, ids []int64) ([]int64, error) {
	open, err := f.db.Session.Query().Where(session.IDIn(ids...), session.ExpiresAtGT(f.now())).IDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("find sessions: %w", err)
	}
	return without(ids, open), nil
}

// keysLast is how long an idempotency key is remembered.
const keysLast = 24 * time.Hour

// Purge deletes expired sessions and old idempotency keys, and reports how many.
//
// Cost: two deletions by index, as large as what has expired.
func (f *Feed) Purge(ctx context.Context) (int, error) {
	sessions, err := f.db.Session.Delete().Where(session.ExpiresAtLTE(f.now())).Exec(ctx)
	if err != nil {
		return 0, fmt.Errorf("purge sessions: %w", err)
	}
	keys, err := f.db.IdempotencyKey.Delete().Where(idempotencykey.CreatedAtLTE(f.now().Add(-keysLast))).Exec(ctx)
	if err != nil {
		return sessions, fmt.Errorf("purge idempotency keys: %w", err)
	}
	return sessions + keys, nil
}

// Profile is a change of a user's own profile; nil fields stay as they are.
type Profile struct {
	Name, Bio         *string
	DefaultVisibility *schema.Visibility
	ApprovesFollowers *bool
}

// UpdateProfile changes the viewer's profile. Errors: Unauthenticated, BadInput.
//
// Cost: one update by primary key.
func (f *Feed) UpdateProfile(ctx context.Context, v Viewer, p Profile) (*ent.User, error) {
	if v.ID == 0 {
		return nil, errSignIn
	}
	change := f.db.User.UpdateOneID(v.ID)
	if p.Name != nil {
		name, err := cleanLine("The name", *p.Name, 1, MaxName)
		if err != nil {
			return nil, err
		}
		change.SetName(name)
	}
	if p.Bio != nil {
		bio, err := cleanText("The bio", *p.Bio, 0, MaxBio)
		if err != nil {
			return nil, err
		}
		change.SetBio(bio)
	}
	if p.DefaultVisibility != nil {
		change.SetDefaultVisibility(*p.DefaultVisibility)
	}
	if p.ApprovesFollowers != nil {
		change.SetApprovesFollowers(*p.ApprovesFollowers)
	}
	u, err := change.Save(ctx)
	if err != nil {
		return nil, fmt.Errorf("update profile: %w", err)
	}
	return u, nil
}

// HashPassword is the hash of a password for accounts that are made in bulk,
// not by SignUp. Error: BadInput when SignUp would not take it.
func HashPassword(password string) (string, error) {
	if err := checkPassword(password); err != nil {
		return "", err
	}
	salt := newSalt()
	return phc(salt, derive(password, salt)), nil
}

// hash returns the password's argon2id hash in PHC string format. At most as
// many hashes as there are processors run at once: each takes 19 MiB.
func (f *Feed) hash(ctx context.Context, password string) (string, error) {
	salt := newSalt()
	key, err := f.argon(ctx, password, salt)
	if err != nil {
		return "", err
	}
	return phc(salt, key), nil
}

func newSalt() []byte {
	salt := make([]byte, argonSalt)
	rand.Read(salt)
	return salt
}

func phc(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return argonPrefix + b64.EncodeToString(salt) + "$" + b64.EncodeToString(key)
}

func derive(password string, salt []byte) []byte {
	return argon2.IDKey([]byte(password), salt, argonPasses, argonMemory, argonLanes, argonKey)
}

func (f *Feed) verify(ctx context.Context, password, stored string) (bool, error) {
	b64 := base64.RawStdEncoding
	rest, ok := strings.CutPrefix(stored, argonPrefix)
	saltText, keyText, ok2 := strings.Cut(rest, "$")
	salt, err := b64.DecodeString(saltText)
	want, err2 := b64.DecodeString(keyText)
	if !ok || !ok2 || err != nil || err2 != nil {
		// An account without a usable hash (imported) has no password that fits.
		salt, want = make([]byte, argonSalt), nil
	}
	got, err := f.argon(ctx, password, salt)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

func (f *Feed) argon(ctx context.Context, password string, salt []byte) ([]byte, error) {
	select {
	case f.hashing <- struct{}{}:
		defer func() { <-f.hashing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return derive(password, salt), nil
}

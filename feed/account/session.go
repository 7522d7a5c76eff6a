package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tideline/ent"
	"tideline/ent/predicate"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/apikey"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/live"
	"tideline/queue"
)

// Viewer is the user on whose behalf a call is made. The zero Viewer is anonymous.
type Viewer struct {
	ID int64 // the user's id
	// Session is the id of the session, or the negative id of the API key.
	Session int64
	// Key is the API key with which a server makes the call for the user or for nobody. It is nil
	// if the call is made with a session. It must not be changed.
	Key *apikey.Key
	// Issued is when the issuer signed the token of the call. It is zero if the session began
	// with a log-in.
	Issued time.Time
}

// Since returns when the viewer's account was created on this server, or imported. For an
// anonymous viewer it returns the earliest time that an id can have. It costs nothing.
func (v Viewer) Since() time.Time { return ids.TimeOf(v.ID) }

// Auth is a new session. The server keeps only a hash of the token.
type Auth struct {
	Token     string
	ExpiresAt time.Time
	User      *ent.User
	// Restored says that the account was in the grace period of a deletion and has been restored.
	Restored bool
}

// The default of SessionsConfig.TTL, and its bounds.
const (
	MinSessionTTL     = time.Minute
	DefaultSessionTTL = 30 * 24 * time.Hour
	MaxSessionTTL     = 8760 * time.Hour
)

// DefaultGrace is the usual SessionsConfig.Grace. MaxGrace is its upper bound.
const (
	DefaultGrace = 30 * 24 * time.Hour
	MaxGrace     = 8760 * time.Hour
)

// SessionsConfig configures Sessions. Fields are required unless they have a default.
type SessionsConfig struct {
	DB        *ent.Client
	Publisher *live.Publisher // tells open subscriptions that their session has ended
	Queue     *queue.Queue    // runs the jobs that delete accounts
	// Visibility reevaluates its verdicts when a user is hidden.
	Visibility *visibility.Reader
	// Keys are the API keys that can act for users. Defaults to none.
	Keys *apikey.Keys
	// TTL is how long a session lasts after a log-in. Defaults to DefaultSessionTTL.
	TTL time.Duration
	// Grace is how long a log-in can restore an account after its user has deleted it. With 0 it
	// cannot be restored.
	Grace time.Duration
	// Webhooks records deletions for endpoints of other servers. Defaults to none.
	Webhooks *webhook.Outbox
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Sessions manages sessions. It is safe for concurrent use.
type Sessions struct {
	cfg    SessionsConfig
	known  knownSessions
	askers askers
}

// MaxSessions is how many sessions a user may have. A new one beyond that ends the oldest.
const MaxSessions = 100

// sessionPage is how many sessions one statement deletes.
const sessionPage = 1000

// NewSessions returns Sessions. It fails if a required field is missing.
func NewSessions(cfg SessionsConfig) (*Sessions, error) {
	if cfg.DB == nil || cfg.Publisher == nil || cfg.Queue == nil || cfg.Visibility == nil {
		return nil, errors.New("sessions: DB, Publisher, Queue and Visibility are required")
	}
	cfg.TTL = cmp.Or(cfg.TTL, DefaultSessionTTL)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Sessions{cfg: cfg}, nil
}

// now returns UTC, because SQLite compares times as text.
func (s *Sessions) now() time.Time { return s.cfg.Now().UTC() }

// start adds a session of the user. It ends the sessions beyond MaxSessions and reports how many
// ended. After the commit, the caller tells other processes about them.
func (s *Sessions) start(ctx context.Context, table *ent.SessionClient, u *ent.User) (auth *Auth, ended int, err error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	token := base64.RawURLEncoding.EncodeToString(raw)
	expires := s.now().Add(s.cfg.TTL).Truncate(time.Millisecond)
	hash := hashOf(token)
	err = table.Create().SetTokenHash(hash[:]).SetUserID(u.ID).SetExpiresAt(expires).SetUserAgent(userAgent(ctx)).
		SetCreatedAt(s.now()).Exec(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("start session: %w", err)
	}
	ended, err = endOldest(ctx, table, u.ID)
	return &Auth{Token: token, ExpiresAt: expires, User: u}, ended, err
}

// endOldest deletes the sessions of a user except the newest MaxSessions.
//
// Cost: an index range of the user's sessions.
func endOldest(ctx context.Context, table *ent.SessionClient, userID int64) (ended int, err error) {
	newest, err := table.Query().Where(session.UserID(userID)).Order(ent.Desc(session.FieldID)).Offset(MaxSessions).FirstID(ctx)
	if ent.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the oldest sessions: %w", err)
	}
	return deleteSessions(ctx, table, session.UserID(userID), session.IDLTE(newest))
}

// deleteSessions deletes sessions in pages and returns how many it deleted. A statement binds the
// ids of a page as one value, because databases limit the number of values.
func deleteSessions(ctx context.Context, table *ent.SessionClient, where ...predicate.Session) (deleted int, err error) {
	for {
		ids, err := table.Query().Where(where...).Limit(sessionPage).IDs(ctx)
		if err != nil {
			return deleted, fmt.Errorf("list sessions: %w", err)
		}
		if len(ids) == 0 {
			return deleted, nil
		}
		n, err := table.Delete().Where(rows.Among(session.FieldID, ids)).Exec(ctx)
		if deleted += n; err != nil {
			return deleted, fmt.Errorf("delete sessions: %w", err)
		}
		if len(ids) < sessionPage {
			return deleted, nil
		}
	}
}

func hashOf(token string) tokenHash { return sha256.Sum256([]byte(token)) }

// Authenticate returns the viewer of the token's session and the session's expiry. While Run is
// running, a session that another process has ended may be accepted for up to five seconds.
// Error: Unauthenticated for a token that is unknown, expired or logged out.
//
// Cost: one look-up by index, in a statement shared with concurrent calls. While Run is running,
// a session in use costs nothing.
func (s *Sessions) Authenticate(ctx context.Context, token string) (Viewer, time.Time, error) {
	found, ok, err := s.find(ctx, hashOf(token))
	if err != nil {
		return Viewer{}, time.Time{}, err
	}
	if !ok {
		return Viewer{}, time.Time{}, errEnded
	}
	return found.viewer, found.expires, nil
}

var errEnded error = refusal.New(refusal.SessionEnded, "The session has ended. Log in again.")

// find returns the open session of a token. It returns ok false if there is none.
func (s *Sessions) find(ctx context.Context, hash tokenHash) (found knownSession, ok bool, err error) {
	now := s.now()
	found, ends, ok := s.known.find(hash, now)
	if ok {
		return found, true, nil
	}
	row, err := s.ask(ctx, hash)
	if err != nil || row == nil {
		return found, false, err
	}
	found = knownSession{viewer: Viewer{ID: row.UserID, Session: row.ID}, expires: row.ExpiresAt, checked: now, used: now}
	if row.TokensSince != nil {
		found.tokensSince = *row.TokensSince
	}
	s.known.remember(hash, found, ends)
	return found, true, nil
}

// LogOut ends the viewer's session and closes its subscriptions on every process. A process that
// misses the message notices by itself, as described at Run. For a user of an issuer it ends all
// sessions, as SignOut does, because the tokens share one session. Errors: Unauthenticated;
// Forbidden for an API key.
//
// Cost: one look-up and one deletion by primary key, and one message to each process.
func (s *Sessions) LogOut(ctx context.Context, v Viewer) error {
	if v.Key != nil {
		return refusal.New(refusal.NoSession, "An API key has no session to end; it can be revoked.")
	}
	if v.ID == 0 {
		return refusal.ErrSignIn
	}
	_, err := s.end(ctx, v.ID, v.Session)
	return err
}

// end ends a session of the user. It returns found false if there is no such session.
func (s *Sessions) end(ctx context.Context, userID, id int64) (found bool, err error) {
	row, err := s.cfg.DB.Session.Query().Where(session.ID(id), session.UserID(userID)).Only(ctx)
	if ent.IsNotFound(err) {
		s.known.forget(id)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find session: %w", err)
	}
	if row.TokensSince != nil {
		_, err := s.SignOut(ctx, userID)
		return true, err
	}
	if _, err := s.cfg.DB.Session.Delete().Where(session.ID(id), session.UserID(userID)).Exec(ctx); err != nil {
		return false, fmt.Errorf("end session: %w", err)
	}
	s.tell(ctx, userID, id)
	return true, nil
}

// SignOut ends all sessions of a user, as LogOut ends one. From then on, it refuses tokens of the
// user's issuer that were issued before, also in the same second. It returns how many sessions
// ended. Error: NotFound.
//
// Cost: an update by primary key, a deletion by index, and one message to each process.
func (s *Sessions) SignOut(ctx context.Context, userID int64) (ended int, err error) {
	err = rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
		err := tx.User.UpdateOneID(userID).SetSignedOutBefore(s.now()).Exec(ctx)
		if ent.IsNotFound(err) {
			return refusal.ErrNoSuchUser
		}
		if err != nil {
			return fmt.Errorf("sign out: %w", err)
		}
		ended, err = deleteSessions(ctx, tx.Session, session.UserID(userID))
		return err
	})
	if err != nil {
		return 0, err
	}
	s.tellSeveral(ctx, userID)
	return ended, nil
}

// tell tells every process that a session has ended.
func (s *Sessions) tell(ctx context.Context, userID, session int64) {
	s.known.forget(session)
	s.publish(ctx, userID, live.Event{Kind: live.SessionEnded, Session: session})
}

// tellSeveral tells every process, with one message, that sessions of a user have ended, or that
// API keys may no longer act for the user.
func (s *Sessions) tellSeveral(ctx context.Context, userID int64) {
	s.known.forgetUser(userID)
	s.publish(ctx, userID, live.Event{Kind: live.SessionEnded, Author: userID})
}

func (s *Sessions) publish(ctx context.Context, userID int64, ended live.Event) {
	_, err := s.cfg.Publisher.Publish(ctx, ended, []int64{userID, allProcesses})
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "other processes not told of the log-out; they find out within seconds", "error", err)
	}
}

// Grant identifies the credential of a connection. It is either a session, or the negative id of
// an API key and the id of the user that the key acts for, or 0.
type Grant struct{ Session, User int64 }

// Grant returns the Grant of the viewer's connection.
func (v Viewer) Grant() Grant {
	if v.Key == nil {
		return Grant{Session: v.Session}
	}
	return Grant{v.Session, v.ID}
}

// Ended returns the grants that are no longer valid: ended or expired sessions, revoked API keys,
// and users that no key may act for any longer. It costs one query for sessions, and two more for
// keys.
func (s *Sessions) Ended(ctx context.Context, grants []Grant) ([]Grant, error) {
	var sessions, keys, users []int64
	for _, g := range grants {
		switch {
		case g.Session >= 0 || s.cfg.Keys == nil:
			sessions = append(sessions, g.Session)
		case g.User == 0:
			keys = append(keys, -g.Session)
		default:
			keys, users = append(keys, -g.Session), append(users, g.User)
		}
	}
	over, away := map[int64]bool{}, map[int64]bool{}
	if len(sessions) > 0 {
		open, err := s.cfg.DB.Session.Query().Where(rows.Among(session.FieldID, sessions), session.ExpiresAtGT(s.now())).IDs(ctx)
		if err != nil {
			return nil, fmt.Errorf("find sessions: %w", err)
		}
		mark(over, rows.Without(sessions, open), 1)
	}
	if len(keys) > 0 {
		revoked, err := s.cfg.Keys.Ended(ctx, keys)
		if err != nil {
			return nil, err
		}
		mark(over, revoked, -1)
	}
	if len(users) > 0 {
		present, err := s.cfg.DB.User.Query().Where(rows.Among(user.FieldID, users), user.Hidden(false)).IDs(ctx)
		if err != nil {
			return nil, fmt.Errorf("find users: %w", err)
		}
		mark(away, rows.Without(users, present), 1)
	}
	var ended []Grant
	for _, g := range grants {
		if over[g.Session] || away[g.User] {
			ended = append(ended, g)
		}
	}
	return ended, nil
}

func mark(set map[int64]bool, ids []int64, sign int64) {
	for _, id := range ids {
		set[sign*id] = true
	}
}

// Purge deletes expired sessions and returns how many it deleted.
//
// Cost: two statements by index for each thousand sessions.
func (s *Sessions) Purge(ctx context.Context) (int, error) {
	return deleteSessions(ctx, s.cfg.DB.Session, session.ExpiresAtLTE(s.now()))
}

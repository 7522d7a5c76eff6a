// Package session keeps the sessions of users and says when they end.
//
// It hides how a credential is looked up, which sessions a process remembers, and how every
// process learns that a session has ended.
//
// Invariants:
//
//   - The database stores only a hash of a token.
//   - The process that ends a session refuses it at once. The others refuse it when they are told,
//     and within five seconds if the message is lost.
//   - [Store.Watch] is how everything that outlives a request notices the end of its session:
//     sockets, event streams and subscriptions.
//
// Package login checks passwords and the tokens of issuers. Package apikey stores API keys.
package session

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
	"tideline/internal/batch"
	"tideline/live"
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

// The default of Config.TTL, and its bounds.
const (
	MinTTL     = time.Minute
	DefaultTTL = 30 * 24 * time.Hour
	MaxTTL     = 8760 * time.Hour
)

// Config configures a Store. Fields are required unless they have a default.
type Config struct {
	DB        *ent.Client
	Publisher *live.Publisher // tells other processes that a session has ended
	// Keys are the API keys that can act for users. Defaults to none.
	Keys *apikey.Keys
	// TTL is how long a session lasts after a log-in. Defaults to DefaultTTL.
	TTL time.Duration
	// Logger defaults to a logger that discards everything.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Store keeps sessions. It is safe for concurrent use.
type Store struct {
	cfg     Config
	known   knownSessions
	lookups batch.Batcher[*lookup]
	watches watches
}

// MaxPerUser is how many sessions a user may have. A new one beyond that ends the oldest.
const MaxPerUser = 100

// deletePage is how many sessions one statement deletes.
const deletePage = 1000

// New returns a Store. It fails if a required field is missing.
func New(cfg Config) (*Store, error) {
	if cfg.DB == nil || cfg.Publisher == nil {
		return nil, errors.New("sessions: DB and Publisher are required")
	}
	cfg.TTL = cmp.Or(cfg.TTL, DefaultTTL)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{cfg: cfg, lookups: batch.Batcher[*lookup]{MaxWait: batch.MaxWait}}, nil
}

// now returns UTC, because SQLite compares times as text.
func (s *Store) now() time.Time { return s.cfg.Now().UTC() }

// Hash is the SHA-256 hash of a token. The database stores it in place of the token.
type Hash = [sha256.Size]byte

func hashOf(token string) Hash { return sha256.Sum256([]byte(token)) }

// Start adds a session of the user in tx and returns its token. It ends the user's oldest sessions
// beyond MaxPerUser. If ended is not zero, the caller must call TellEnded after the commit.
//
// Cost: an insert, and an index range of the user's sessions.
func (s *Store) Start(ctx context.Context, tx *ent.Tx, userID int64) (token string, expires time.Time, ended int, err error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	token = base64.RawURLEncoding.EncodeToString(raw)
	expires = s.now().Add(s.cfg.TTL).Truncate(time.Millisecond)
	ended, err = s.StartAs(ctx, tx, userID, hashOf(token), expires, userAgent(ctx))
	return token, expires, ended, err
}

// StartAs is like Start for a credential that the caller has made. No token may have its hash.
func (s *Store) StartAs(ctx context.Context, tx *ent.Tx, userID int64, hash Hash, expires time.Time, agent string) (ended int, err error) {
	err = tx.Session.Create().SetTokenHash(hash[:]).SetUserID(userID).SetExpiresAt(expires).SetUserAgent(agent).
		SetCreatedAt(s.now()).Exec(ctx)
	if err != nil {
		return 0, fmt.Errorf("start session: %w", err)
	}
	return endOldest(ctx, tx, userID)
}

// endOldest deletes the sessions of a user except the newest MaxPerUser.
//
// Cost: an index range of the user's sessions.
func endOldest(ctx context.Context, tx *ent.Tx, userID int64) (ended int, err error) {
	newest, err := tx.Session.Query().Where(session.UserID(userID)).Order(ent.Desc(session.FieldID)).Offset(MaxPerUser).FirstID(ctx)
	if ent.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find the oldest sessions: %w", err)
	}
	return deleteSessions(ctx, tx.Session, session.UserID(userID), session.IDLTE(newest))
}

// EndAll ends all sessions of the user in tx, except the session with the given id, and returns
// how many. From then on, tokens of the user's issuer that were issued before are refused, also those
// of the same second, unless the exception is their session. The caller must call TellEnded after the
// commit. Error: NotFound.
//
// Cost: a look-up and an update by primary key, and a deletion by index.
func (s *Store) EndAll(ctx context.Context, tx *ent.Tx, userID, except int64) (ended int, err error) {
	ofIssuer, err := tx.Session.Query().Where(session.ID(except), session.TokensSinceNotNil()).Exist(ctx)
	if err != nil {
		return 0, fmt.Errorf("find session: %w", err)
	}
	if !ofIssuer {
		err := tx.User.UpdateOneID(userID).SetSignedOutBefore(s.now()).Exec(ctx)
		if ent.IsNotFound(err) {
			return 0, refusal.ErrNoSuchUser
		}
		if err != nil {
			return 0, fmt.Errorf("refuse earlier tokens: %w", err)
		}
	}
	return deleteSessions(ctx, tx.Session, session.UserID(userID), session.IDNEQ(except))
}

// deleteSessions deletes sessions in pages and returns how many it deleted. A statement binds the
// ids of a page as one value, because databases limit the number of values.
func deleteSessions(ctx context.Context, table *ent.SessionClient, where ...predicate.Session) (deleted int, err error) {
	for {
		ids, err := table.Query().Where(where...).Limit(deletePage).IDs(ctx)
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
		if len(ids) < deletePage {
			return deleted, nil
		}
	}
}

// Authenticate returns the viewer of the token's session and the session's expiry. While Run is
// running, a session that another process has ended may be accepted for up to five seconds.
// Error: Unauthenticated for a token that is unknown, expired or logged out.
//
// Cost: one look-up by index, in a statement shared with concurrent calls. While Run is running,
// a session in use costs nothing.
func (s *Store) Authenticate(ctx context.Context, token string) (Viewer, time.Time, error) {
	found, ok, err := s.Find(ctx, hashOf(token))
	if err != nil {
		return Viewer{}, time.Time{}, err
	}
	if !ok {
		return Viewer{}, time.Time{}, ErrEnded
	}
	return found.Viewer, found.Expires, nil
}

// Recall returns the result of Authenticate for a token that it has recently accepted. It only
// computes a hash, and returns ok false if Authenticate would have to query SQL.
func (s *Store) Recall(token string) (v Viewer, expires time.Time, ok bool) {
	found, ok := s.RecallHash(hashOf(token))
	return found.Viewer, found.Expires, ok
}

// ErrEnded is the error for a credential whose session has ended, or that never had one.
var ErrEnded error = refusal.New(refusal.SessionEnded, "The session has ended. Log in again.")

// LogOut ends the viewer's session and closes its subscriptions on every process. A process that
// misses the message notices by itself, as described at Run. For a user of an issuer it ends all
// sessions, as SignOut does, because the tokens share one session. Errors: Unauthenticated;
// Forbidden for an API key.
//
// Cost: one look-up and one deletion by primary key, and one message to each process.
func (s *Store) LogOut(ctx context.Context, v Viewer) error {
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
func (s *Store) end(ctx context.Context, userID, id int64) (found bool, err error) {
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
	s.known.forget(id)
	s.publish(ctx, live.Event{Kind: live.SessionEnded, Author: userID, Session: id})
	return true, nil
}

// SignOut ends all sessions of a user, as EndAll does, and returns how many. Error: NotFound.
//
// Cost: EndAll, and one message to each process.
func (s *Store) SignOut(ctx context.Context, userID int64) (ended int, err error) {
	err = rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
		ended, err = s.EndAll(ctx, tx, userID, 0)
		return err
	})
	if err != nil {
		return 0, err
	}
	s.TellEnded(ctx, userID)
	return ended, nil
}

// TellEnded tells every process, with one message, that sessions of a user have ended, or that API
// keys may no longer act for the user. It does not fail: a process that misses the message notices
// by itself, as described at Run.
func (s *Store) TellEnded(ctx context.Context, userID int64) {
	s.known.forgetUser(userID)
	s.publish(ctx, live.Event{Kind: live.SessionEnded, Author: userID})
}

func (s *Store) publish(ctx context.Context, ended live.Event) {
	if _, err := s.cfg.Publisher.Publish(ctx, ended, []int64{allProcesses}); err != nil {
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
func (s *Store) Ended(ctx context.Context, grants []Grant) ([]Grant, error) {
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
func (s *Store) Purge(ctx context.Context) (int, error) {
	return deleteSessions(ctx, s.cfg.DB.Session, session.ExpiresAtLTE(s.now()))
}

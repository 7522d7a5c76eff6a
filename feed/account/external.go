package account

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/apikey"
	"tideline/feed/identity"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/refusal"
	"tideline/feed/webhook"
)

// Users of an issuer sign in with its tokens. The first token creates the user. All tokens of a
// user share one session, so that everything that ends a session also ends them. The first token
// creates the session's row, and so does the first one after a sign-out. Tokens issued before a
// sign-out are refused: its time is in the user's row and is copied to the session's row.

// sessionSlack is how much longer the session of an issuer's user lasts than the token that
// renewed it. The row is therefore written about once in that time.
const sessionSlack = 24 * time.Hour

// Recall returns the result of Authenticate for a credential that this process has recently
// accepted. It returns ok false if Authenticate would have to query SQL or verify a signature.
func (a *Accounts) Recall(token string) (v Viewer, expires time.Time, ok bool) {
	switch {
	case a.with.Issuers != nil && identity.IsToken(token):
		c, ok := a.with.Issuers.Recall(token)
		if !ok {
			return v, expires, false
		}
		c = a.bounded(c)
		s, _, ok := a.known.find(sessionKey(c.Issuer, c.ExternalID), a.now())
		return s.viewerOf(c), c.Expires, ok && s.admits(c)
	case a.cfg.Keys != nil && apikey.IsKey(token):
		key, user, ok := a.cfg.Keys.Recall(token)
		if !ok {
			return v, expires, false
		}
		return viewerOf(key, user), expires, true
	case a.with.NoPasswords:
		return v, expires, false
	}
	s, _, ok := a.known.find(hashOf(token), a.now())
	return s.viewer, s.expires, ok
}

// Authenticate accepts the tokens that Sessions.Authenticate accepts, and tokens of issuers. The
// first token of an issuer's user creates the user. It also accepts credentials of API keys,
// which do not expire; see apikey.Keys.
//
// Cost: as Sessions.Authenticate, plus the verification of a signature for a new token. The first
// token of a user, the first one after a sign-out, and one a day each cost one or two
// transactions.
func (a *Accounts) Authenticate(ctx context.Context, token string) (Viewer, time.Time, error) {
	if a.with.Issuers != nil && identity.IsToken(token) {
		claims, err := a.with.Issuers.Verify(ctx, token)
		if err != nil {
			return Viewer{}, time.Time{}, err
		}
		return a.admit(ctx, claims)
	}
	if a.cfg.Keys != nil && apikey.IsKey(token) {
		key, user, err := a.cfg.Keys.Authenticate(ctx, token)
		if err != nil {
			return Viewer{}, time.Time{}, err
		}
		return viewerOf(key, user), time.Time{}, nil
	}
	if a.with.NoPasswords {
		return Viewer{}, time.Time{}, errEnded
	}
	return a.Sessions.Authenticate(ctx, token)
}

// viewerOf returns the viewer of a key that acts for the user.
func viewerOf(key *apikey.Key, user int64) Viewer {
	return Viewer{ID: user, Session: -key.ID, Key: key}
}

// bounded limits the expiry of claims to the longest lifetime of a session.
func (a *Accounts) bounded(c identity.Claims) identity.Claims {
	if most := a.now().Add(MaxSessionTTL); c.Expires.After(most) {
		c.Expires = most
	}
	return c
}

// admits reports whether a token with the claims may use this session of an issuer's user: no
// sign-out has refused the token, and the session lasts at least as long as the token.
func (s knownSession) admits(c identity.Claims) bool {
	return !c.Issued.Before(s.tokensSince) && !s.expires.Before(c.Expires)
}

// viewerOf returns the viewer of a token with the claims.
func (s knownSession) viewerOf(c identity.Claims) Viewer {
	s.viewer.Issued = c.Issued
	return s.viewer
}

// sessionKey returns the value that the table of sessions stores for an issuer's user instead of
// a token's hash. It uses another hash function, so that no token has this hash.
func sessionKey(issuer, externalID string) tokenHash {
	return sha512.Sum512_256([]byte(strconv.Itoa(len(issuer)) + ":" + issuer + externalID))
}

// admit returns the viewer of verified claims.
func (a *Accounts) admit(ctx context.Context, c identity.Claims) (Viewer, time.Time, error) {
	c = a.bounded(c)
	key := sessionKey(c.Issuer, c.ExternalID)
	for range 5 { // a concurrent request may end or renew the session
		s, found, err := a.find(ctx, key)
		if err != nil {
			return Viewer{}, time.Time{}, err
		}
		if found && c.Issued.Before(s.tokensSince) {
			break
		}
		if found && s.admits(c) {
			return s.viewerOf(c), c.Expires, nil
		}
		if err := a.open(ctx, key, c); err != nil {
			return Viewer{}, time.Time{}, err
		}
		if found {
			a.known.forget(s.viewer.Session) // the remembered session has the former expiry
		}
	}
	return Viewer{}, time.Time{}, errEnded
}

// open creates or renews the session of an issuer's user. Error: Unauthenticated if the user was
// signed out after the token was issued, or is hidden.
func (a *Accounts) open(ctx context.Context, key tokenHash, c identity.Claims) error {
	id, err := a.userOf(ctx, c)
	if err != nil {
		return err
	}
	ended := 0
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).Only(ctx) // SignOut changes it
		if err != nil {
			return fmt.Errorf("find user: %w", err)
		}
		var since time.Time
		if u.SignedOutBefore != nil {
			since = *u.SignedOutBefore
		}
		if c.Issued.Before(since) || u.Hidden {
			return errEnded
		}
		err = tx.Session.Create().SetTokenHash(key[:]).SetUserID(id).SetTokensSince(since.UTC()).
			SetExpiresAt(c.Expires.Add(sessionSlack).UTC().Truncate(time.Millisecond)).
			OnConflictColumns(session.FieldTokenHash).Update(func(s *ent.SessionUpsert) { s.UpdateExpiresAt() }).Exec(ctx)
		if err != nil {
			return fmt.Errorf("open session: %w", err)
		}
		ended, err = endOldest(ctx, tx.Session, id)
		return err
	})
	if err == nil && ended > 0 {
		a.tellSeveral(ctx, id)
	}
	return err
}

// userOf returns the user of the claims and creates the user if there is none. The pair of issuer
// and external id is unique, so concurrent calls create one user. Error: Unauthenticated if the
// user was deleted after the token was issued.
func (a *Accounts) userOf(ctx context.Context, c identity.Claims) (int64, error) {
	for attempt := range 5 {
		id, err := a.cfg.DB.User.Query().Where(user.Issuer(c.Issuer), user.ExternalID([]byte(c.ExternalID))).OnlyID(ctx)
		if !ent.IsNotFound(err) {
			return id, rows.Wrap("find user", err)
		}
		gone, err := a.deleted(ctx, c)
		if err != nil || gone {
			return 0, cmp.Or(err, errEnded)
		}
		if id, err = a.ids.Next(); err != nil {
			return 0, err
		}
		handle := HandleFrom(c.Handle, id, attempt)
		err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
			u, err := tx.User.Create().SetID(id).SetHandle(handle).SetName(NameFrom(c.Name, handle)).SetPasswordHash(NoPassword).
				SetIssuer(c.Issuer).SetExternalID([]byte(c.ExternalID)).Save(ctx)
			if err != nil {
				return err
			}
			if err := KeepNames(ctx, tx, u); err != nil {
				return err
			}
			return a.with.Webhooks.User(ctx, tx, webhook.UserCreated, u)
		})
		if !ent.IsConstraintError(err) {
			return id, rows.Wrap("create user", err)
		}
	}
	return 0, fmt.Errorf("no handle for a user of the issuer %s", c.Issuer)
}

// deleted reports whether the user of the claims was deleted within the last hours, after the
// token was issued.
func (a *Accounts) deleted(ctx context.Context, c identity.Claims) (bool, error) {
	key := sessionKey(c.Issuer, c.ExternalID)
	// The row is due tracesFor after the end of the deletion.
	found, err := a.cfg.DB.HiddenUser.Query().Where(hiddenuser.Identity(key[:]), hiddenuser.StateEQ(hiddenuser.StateGONE),
		hiddenuser.DueAtGT(c.Issued.Add(tracesFor).UTC())).Exist(ctx)
	return found, rows.Wrap("find deleted user", err)
}

// NoPassword is stored instead of a password hash. No password matches it.
const NoPassword = "-"

// HandleFrom derives the handle of a new user from the handle in the token. It folds it, cuts it
// at an @ inside, replaces each run of other characters by _, and cuts it to MaxHandle. If the
// handle is taken, the next attempts add _ and four random characters. The last attempt, and a
// token without a usable handle, use user_ and the id, which is unique.
func HandleFrom(claimed string, id int64, attempt int) string {
	name, _, _ := strings.Cut(handleOf(claimed), "@")
	name = strings.Trim(strings.Join(strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}), "_"), "_")
	if name == "" || attempt > 3 {
		return "user_" + strconv.FormatInt(id, 36)
	}
	suffix := ""
	if attempt > 0 {
		var random [8]byte
		rand.Read(random[:])
		suffix = "_" + strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))[:4]
	}
	return strings.TrimRight(name[:min(len(name), MaxHandle-len(suffix))], "_") + suffix
}

// NameFrom derives the name of a new user from the name in the token. It joins the name into one
// line, removes control characters and characters that change the direction of the text, and cuts
// it to MaxName characters. If nothing visible is left, it returns the handle.
func NameFrom(claimed, handle string) string {
	name := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(claimed, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || text.Turns(r)
	}), " ")
	if name = strings.TrimSpace(text.Cut(name, MaxName)); text.Visible(name) {
		return name
	}
	return handle
}

// ExternalIDs returns the users' ids at their issuers, in order. An entry is nil if the user has
// no issuer, or if the viewer may not see the id. Only the user may see it, and other users of an
// issuer whose ids are public.
//
// Cost: none for an anonymous viewer, otherwise one look-up by primary keys.
func (a *Accounts) ExternalIDs(ctx context.Context, v Viewer, ids []int64) ([]*string, error) {
	list := make([]*string, len(ids))
	if v.ID == 0 {
		return list, nil
	}
	found, err := a.cfg.DB.User.Query().Where(rows.Among(user.FieldID, append([]int64{v.ID}, ids...)), user.ExternalIDNotNil(), user.Hidden(false)).
		Select(user.FieldID, user.FieldIssuer, user.FieldExternalID).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read external ids: %w", err)
	}
	byID := map[int64]*ent.User{}
	for _, u := range found {
		byID[u.ID] = u
	}
	me := byID[v.ID]
	for i, id := range ids {
		if u := byID[id]; u != nil && (id == v.ID || me != nil && *me.Issuer == *u.Issuer && a.publicIDs(*u.Issuer)) {
			text := string(u.ExternalID)
			list[i] = &text
		}
	}
	return list, nil
}

// UserByExternalID returns the id of the user with the external id at the viewer's own issuer.
// Error: NotFound, also for any user except the viewer if the issuer's ids are not public.
//
// Cost: two look-ups by index.
func (a *Accounts) UserByExternalID(ctx context.Context, v Viewer, externalID string) (*int64, error) {
	me, err := a.cfg.DB.User.Query().Where(user.ID(v.ID), user.ExternalIDNotNil()).
		Select(user.FieldID, user.FieldIssuer, user.FieldExternalID).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("find viewer: %w", err)
	}
	if string(me.ExternalID) == externalID {
		return &me.ID, nil
	}
	if !a.publicIDs(*me.Issuer) {
		return nil, refusal.ErrNoSuchUser
	}
	id, err := a.cfg.DB.User.Query().Where(user.Issuer(*me.Issuer), user.ExternalID([]byte(externalID))).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	return &id, rows.Wrap("find user", err)
}

func (a *Accounts) publicIDs(issuer string) bool {
	return a.with.Issuers != nil && a.with.Issuers.PublicIDs(issuer)
}

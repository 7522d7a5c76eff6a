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

// Users of an issuer are those who come with its tokens. The first token makes the user.
// All tokens of a user share one session, so that what ends a session ends them: the row
// is made by the first of them, and again by the first after a sign-out. Which of the
// older ones are refused then is written in the user's row, and copied to the session's.

// sessionSlack is how much longer than the token that renews it the session of a user of
// an issuer lasts: it is written about once in that time.
const sessionSlack = 24 * time.Hour

// Recall returns what Authenticate would return for a credential that this process has lately
// found good. It does no work: ok is false when Authenticate would have to look anything up, or
// to check a signature.
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

// Authenticate takes the tokens that Sessions.Authenticate takes, and tokens of issuers: the
// first one makes its user. It also takes credentials of API keys, see apikey.Keys, which do
// not end by themselves.
//
// Cost: as of Sessions.Authenticate, with a signature for a token that is new. The first token of
// a user, or after a sign-out, costs a transaction or two, and so does one a day.
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

// viewerOf is the viewer of a key that acts for the user.
func viewerOf(key *apikey.Key, user int64) Viewer {
	return Viewer{ID: user, Session: -key.ID, Key: key}
}

// bounded is the claims of a token that lasts no longer than a session may.
func (a *Accounts) bounded(c identity.Claims) identity.Claims {
	if most := a.now().Add(MaxSessionTTL); c.Expires.After(most) {
		c.Expires = most
	}
	return c
}

// admits reports whether the open session of a user of an issuer is good for a token with the
// claims: the token was not refused by a sign-out, and does not outlast the session.
func (s knownSession) admits(c identity.Claims) bool {
	return !c.Issued.Before(s.tokensSince) && !s.expires.Before(c.Expires)
}

// viewerOf is the viewer of a token with the claims.
func (s knownSession) viewerOf(c identity.Claims) Viewer {
	s.viewer.Issued = c.Issued
	return s.viewer
}

// sessionKey stands for a user of an issuer in the table of sessions, where the hash of a
// token stands for others. It is another hash function: nothing that somebody sends as a
// token has this hash.
func sessionKey(issuer, externalID string) tokenHash {
	return sha512.Sum512_256([]byte(strconv.Itoa(len(issuer)) + ":" + issuer + externalID))
}

// admit returns the viewer of verified claims.
func (a *Accounts) admit(ctx context.Context, c identity.Claims) (Viewer, time.Time, error) {
	c = a.bounded(c)
	key := sessionKey(c.Issuer, c.ExternalID)
	for range 5 { // another request may end, or renew, the session at the same time
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
			a.known.forget(s.viewer.Session) // it knows when the session would have ended
		}
	}
	return Viewer{}, time.Time{}, errEnded
}

// open begins or renews the session of a user of an issuer. Error: Unauthenticated when
// the user was signed out after the token was issued.
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

// userOf returns the user of the claims, and makes the user when there is none: once, as
// the pair of issuer and id is unique. Error: Unauthenticated when the user was deleted
// after the token was issued.
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

// deleted reports whether the user of the claims was deleted in the last hours, and not yet
// when the token was issued.
func (a *Accounts) deleted(ctx context.Context, c identity.Claims) (bool, error) {
	key := sessionKey(c.Issuer, c.ExternalID)
	// Such a row is due TracesFor after the end of the deletion.
	found, err := a.cfg.DB.HiddenUser.Query().Where(hiddenuser.Identity(key[:]), hiddenuser.StateEQ(hiddenuser.StateGONE),
		hiddenuser.DueAtGT(c.Issued.Add(tracesFor).UTC())).Exist(ctx)
	return found, rows.Wrap("find deleted user", err)
}

// NoPassword is no hash: no password matches it.
const NoPassword = "-"

// HandleFrom makes the handle of a new user from the one that the token has: folded, without what follows an @ inside, with _ for every run of other characters, cut
// to MaxHandle. When it is taken, the next attempts add _ and a few random characters;
// they and an empty one end up at user_ with the id, which is unique.
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

// NameFrom makes the name of a new user from the one that the token has: on one line,
// without control characters and those that change the direction of the text, cut to MaxName
// characters. It defaults to the handle, also where the name shows nothing.
func NameFrom(claimed, handle string) string {
	name := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(claimed, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || text.Turns(r)
	}), " ")
	if name = strings.TrimSpace(text.Cut(name, MaxName)); text.Visible(name) {
		return name
	}
	return handle
}

// ExternalIDs returns the ids that the users of the list have at their issuer; nil where
// there is none, or where it is none of the viewer's business: it is for the user alone,
// and for the other users of an issuer whose ids are public.
//
// Cost: none for an anonymous viewer, else one look-up by primary keys.
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

// UserByExternalID returns the id of the user who has the id at the viewer's own issuer. Error:
// NotFound, also for any user but the viewer when the issuer's ids are not public.
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

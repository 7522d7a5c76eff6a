package login

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/identity"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

// Users of an issuer sign in with its tokens. The first token creates the user. All tokens of a
// user share one session: see session.Store.Renew.

// Recall returns the result of Authenticate for a credential that this process has recently
// accepted. It returns ok false if Authenticate would have to query SQL or verify a signature.
func (l *Login) Recall(token string) (v session.Viewer, expires time.Time, ok bool) {
	switch {
	case l.cfg.Issuers != nil && identity.IsToken(token):
		c, ok := l.cfg.Issuers.Recall(token)
		if !ok {
			return v, expires, false
		}
		c = l.bounded(c)
		s, ok := l.cfg.Sessions.RecallHash(session.HashOfIssuer(c.Issuer, c.ExternalID))
		return viewerOfToken(s, c), c.Expires, ok && admits(s, c)
	case l.cfg.Keys != nil && apikey.IsKey(token):
		key, user, ok := l.cfg.Keys.Recall(token)
		if !ok {
			return v, expires, false
		}
		return viewerOfKey(key, user), expires, true
	case l.cfg.NoPasswords:
		return v, expires, false
	}
	return l.cfg.Sessions.Recall(token)
}

// Authenticate accepts the tokens that session.Store.Authenticate accepts, and tokens of issuers. The
// first token of an issuer's user creates the user. It also accepts credentials of API keys,
// which do not expire; see apikey.Keys.
//
// Cost: as session.Store.Authenticate, plus the verification of a signature for a new token. The first
// token of a user, the first one after a sign-out, and one a day each cost one or two
// transactions.
func (l *Login) Authenticate(ctx context.Context, token string) (session.Viewer, time.Time, error) {
	if l.cfg.Issuers != nil && identity.IsToken(token) {
		claims, err := l.cfg.Issuers.Verify(ctx, token)
		if err != nil {
			return session.Viewer{}, time.Time{}, err
		}
		return l.admit(ctx, claims)
	}
	if l.cfg.Keys != nil && apikey.IsKey(token) {
		key, user, err := l.cfg.Keys.Authenticate(ctx, token)
		if err != nil {
			return session.Viewer{}, time.Time{}, err
		}
		return viewerOfKey(key, user), time.Time{}, nil
	}
	if l.cfg.NoPasswords {
		return session.Viewer{}, time.Time{}, session.ErrEnded
	}
	return l.cfg.Sessions.Authenticate(ctx, token)
}

// viewerOfKey returns the viewer of a key that acts for the user.
func viewerOfKey(key *apikey.Key, user int64) session.Viewer {
	return session.Viewer{ID: user, Session: -key.ID, Key: key}
}

// bounded limits the expiry of claims to the longest lifetime of a session.
func (l *Login) bounded(c identity.Claims) identity.Claims {
	if most := l.now().Add(session.MaxTTL); c.Expires.After(most) {
		c.Expires = most
	}
	return c
}

// admits reports whether a token with the claims may use this session of an issuer's user: no
// sign-out has refused the token, and the session lasts at least as long as the token.
func admits(s session.Found, c identity.Claims) bool {
	return !c.Issued.Before(s.TokensSince) && !s.Expires.Before(c.Expires)
}

// viewerOfToken returns the viewer of a token with the claims.
func viewerOfToken(s session.Found, c identity.Claims) session.Viewer {
	s.Viewer.Issued = c.Issued
	return s.Viewer
}

// admit returns the viewer of verified claims.
func (l *Login) admit(ctx context.Context, c identity.Claims) (session.Viewer, time.Time, error) {
	c = l.bounded(c)
	hash := session.HashOfIssuer(c.Issuer, c.ExternalID)
	for range 5 { // a concurrent request may end or renew the session
		s, found, err := l.cfg.Sessions.Find(ctx, hash)
		if err != nil {
			return session.Viewer{}, time.Time{}, err
		}
		if found && c.Issued.Before(s.TokensSince) {
			break
		}
		if found && admits(s, c) {
			return viewerOfToken(s, c), c.Expires, nil
		}
		id, err := l.userOf(ctx, c)
		if err == nil {
			err = l.cfg.Sessions.Renew(ctx, hash, id, c.Issued, c.Expires)
		}
		if err != nil {
			return session.Viewer{}, time.Time{}, err
		}
		if found {
			l.cfg.Sessions.Forget(s.Viewer.Session) // the remembered session has the former expiry
		}
	}
	return session.Viewer{}, time.Time{}, session.ErrEnded
}

// userOf returns the user of the claims and creates the user if there is none. The pair of issuer
// and external id is unique, so concurrent calls create one user. Error: Unauthenticated if the
// user was deleted after the token was issued.
func (l *Login) userOf(ctx context.Context, c identity.Claims) (int64, error) {
	for attempt := range 5 {
		id, err := l.cfg.DB.User.Query().Where(user.Issuer(c.Issuer), user.ExternalID([]byte(c.ExternalID))).OnlyID(ctx)
		if !ent.IsNotFound(err) {
			return id, errs.Wrap(err, "find user")
		}
		gone, err := l.cfg.Accounts.DeletedAfter(ctx, session.HashOfIssuer(c.Issuer, c.ExternalID), c.Issued)
		if err != nil || gone {
			return 0, cmp.Or(err, session.ErrEnded)
		}
		if id, err = l.cfg.IDs.Next(); err != nil {
			return 0, err
		}
		handle := account.HandleFrom(c.Handle, id, attempt)
		err = rows.InTx(ctx, l.cfg.DB, func(tx *ent.Tx) error {
			u, err := tx.User.Create().SetID(id).SetHandle(handle).SetName(account.NameFrom(c.Name, handle)).SetPasswordHash(account.NoPassword).
				SetIssuer(c.Issuer).SetExternalID([]byte(c.ExternalID)).Save(ctx)
			if err != nil {
				return err
			}
			if err := account.KeepNames(ctx, tx, u); err != nil {
				return err
			}
			return l.cfg.Webhooks.User(ctx, tx, webhook.UserCreated, u)
		})
		if !ent.IsConstraintError(err) {
			return id, errs.Wrap(err, "create user")
		}
	}
	return 0, fmt.Errorf("no handle for a user of the issuer %s", c.Issuer)
}

// ExternalIDs returns the users' ids at their issuers, in order. An entry is nil if the user has
// no issuer, or if the viewer may not see the id. Only the user may see it, and other users of an
// issuer whose ids are public.
//
// Cost: none for an anonymous viewer, otherwise one look-up by primary keys.
func (l *Login) ExternalIDs(ctx context.Context, v session.Viewer, ids []int64) ([]*string, error) {
	list := make([]*string, len(ids))
	if v.ID == 0 {
		return list, nil
	}
	found, err := l.cfg.DB.User.Query().Where(rows.Among(user.FieldID, append([]int64{v.ID}, ids...)), user.ExternalIDNotNil(), user.Hidden(false)).
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
		if u := byID[id]; u != nil && (id == v.ID || me != nil && *me.Issuer == *u.Issuer && l.publicIDs(*u.Issuer)) {
			list[i] = new(string(u.ExternalID))
		}
	}
	return list, nil
}

// UserByExternalID returns the id of the user with the external id at the viewer's own issuer.
// Error: NotFound, also for any user except the viewer if the issuer's ids are not public.
//
// Cost: two look-ups by index.
func (l *Login) UserByExternalID(ctx context.Context, v session.Viewer, externalID string) (*int64, error) {
	me, err := l.cfg.DB.User.Query().Where(user.ID(v.ID), user.ExternalIDNotNil()).
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
	if !l.publicIDs(*me.Issuer) {
		return nil, refusal.ErrNoSuchUser
	}
	id, err := l.cfg.DB.User.Query().Where(user.Issuer(*me.Issuer), user.ExternalID([]byte(externalID))).OnlyID(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	return &id, errs.Wrap(err, "find user")
}

func (l *Login) publicIDs(issuer string) bool {
	return l.cfg.Issuers != nil && l.cfg.Issuers.PublicIDs(issuer)
}

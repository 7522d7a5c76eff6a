package login

import (
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"time"

	"tideline/ent"
	entsession "tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/internal/errs"
)

const (
	// ExportPath is the path at which a server serves the files that OfferExport offers.
	ExportPath = "/account/export"
	// exportTTL is how long a path is valid, unless the file has been sent completely before.
	exportTTL = 5 * time.Minute
	// exportAgent is the user agent that the list of sessions shows for an offered export.
	exportAgent = "export of the account"
)

// exportHash returns the value that the table of sessions stores for an export instead of a
// token's hash. It uses another hash function, so that the secret of an export is not valid as a
// token.
func exportHash(secret string) session.Hash { return sha512.Sum512_256([]byte("export:" + secret)) }

// OfferExport confirms the viewer with Confirm and returns the path of a file with all data of
// the viewer. The path is valid until the file has been sent completely. It counts as a session,
// and everything that ends sessions ends it. Errors: Unauthenticated, Forbidden; Conflict if the
// password is changed at the same time.
//
// Cost: Confirm, a lock of the user, a look-up, an insert, and an index range of the user's sessions.
func (l *Login) OfferExport(ctx context.Context, v session.Viewer, password string) (path string, until time.Time, err error) {
	verified, err := l.Confirm(ctx, v, password)
	if err != nil {
		return "", time.Time{}, err
	}
	return l.offerConfirmed(ctx, v, verified)
}

// offerConfirmed is OfferExport after Confirm, which has returned the hash verified. It locks the
// user, since what hides the user, changes the password or ends all sessions does so, too: an offer
// is either made before, and ends with the sessions, or refused.
func (l *Login) offerConfirmed(ctx context.Context, v session.Viewer, verified string) (path string, until time.Time, err error) {
	raw := make([]byte, 32)
	rand.Read(raw)
	secret := base64.RawURLEncoding.EncodeToString(raw)
	hash, until := exportHash(secret), l.now().Add(exportTTL).Truncate(time.Millisecond)
	ended := 0
	err = rows.InTx(ctx, l.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(v.ID), rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) || err == nil && u.Hidden {
			return refusal.ErrSignIn
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		if verified != "" && u.PasswordHash != verified {
			return errPasswordChanged
		}
		if v.Key == nil {
			open, err := tx.Session.Query().Where(entsession.ID(v.Session), entsession.UserID(v.ID), entsession.ExpiresAtGT(l.now())).Exist(ctx)
			if err != nil {
				return fmt.Errorf("find session: %w", err)
			}
			if !open {
				return session.ErrEnded
			}
		}
		ended, err = l.cfg.Sessions.StartAs(ctx, tx, v.ID, hash, until, exportAgent)
		return err
	})
	if err == nil && ended > 0 {
		l.cfg.Sessions.TellEnded(ctx, v.ID)
	}
	return ExportPath + "?secret=" + secret, until, errs.Wrap(err, "offer export")
}

// Offer is an export that OfferExport has offered and that has not ended.
type Offer struct {
	User    int64
	Expires time.Time
	session int64
}

// FindExport returns the offer for the secret in a path. The offer stays valid until EndExport or
// until it expires, so an interrupted download can be repeated. Error: Unauthenticated, also if the
// user is hidden.
//
// Cost: a look-up by index, and one of the user.
func (l *Login) FindExport(ctx context.Context, secret string) (Offer, error) {
	hash := exportHash(secret)
	row, err := l.cfg.DB.Session.Query().Where(entsession.TokenHash(hash[:]), entsession.ExpiresAtGT(l.now()), entsession.HasUserWith(user.Hidden(false))).Only(ctx)
	if ent.IsNotFound(err) {
		return Offer{}, errNoExport
	}
	if err != nil {
		return Offer{}, fmt.Errorf("find export: %w", err)
	}
	return Offer{row.UserID, row.ExpiresAt, row.ID}, nil
}

// EndExport ends an offer after its file has been sent completely.
//
// Cost: a deletion by primary key.
func (l *Login) EndExport(ctx context.Context, o Offer) error {
	_, err := l.cfg.DB.Session.Delete().Where(entsession.ID(o.session)).Exec(ctx)
	return errs.Wrap(err, "end export")
}

var errNoExport error = refusal.New(refusal.DownloadEnded, "This path was used, or has ended. Ask for another one.")

package account

import (
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
)

const (
	// ExportPath is where a server has the files that OfferExport names.
	ExportPath = "/account/export"
	// exportTTL is how long a path is good, unless the file was sent whole before.
	exportTTL = 5 * time.Minute
	// exportAgent is what the list of sessions says of a path that was not used yet.
	exportAgent = "export of the account"
)

// exportHash stands for the secret of a path in the table of sessions, where the hash of a
// token stands for others. It is another hash function: the secret is no token.
func exportHash(secret string) tokenHash { return sha512.Sum512_256([]byte("export:" + secret)) }

// OfferExport returns the path of a file with all that is kept of the viewer, after
// Confirm. The path is good until the file was sent whole, and counts and ends as a session does. Errors:
// Unauthenticated, Forbidden.
//
// Cost: that of Confirm, an insert, and an index range of the user's sessions.
func (a *Accounts) OfferExport(ctx context.Context, v Viewer, password string) (path string, until time.Time, err error) {
	if err := a.Confirm(ctx, v, password); err != nil {
		return "", time.Time{}, err
	}
	raw := make([]byte, 32)
	rand.Read(raw)
	secret := base64.RawURLEncoding.EncodeToString(raw)
	hash, until := exportHash(secret), a.now().Add(exportTTL).Truncate(time.Millisecond)
	ended := 0
	err = rows.InTx(ctx, a.cfg.DB, func(tx *ent.Tx) error {
		err := tx.Session.Create().SetTokenHash(hash[:]).SetUserID(v.ID).SetExpiresAt(until).SetUserAgent(exportAgent).
			SetCreatedAt(a.now()).Exec(ctx)
		if err == nil {
			ended, err = endOldest(ctx, tx.Session, v.ID)
		}
		return err
	})
	if err == nil && ended > 0 {
		a.tellSeveral(ctx, v.ID)
	}
	return ExportPath + "?secret=" + secret, until, rows.Wrap("offer export", err)
}

// Offer is an export that OfferExport has offered and that is not over.
type Offer struct {
	User    int64
	Expires time.Time
	session int64
}

// FindExport returns the offer of the secret in a path. The offer stays good until EndExport,
// or until its time is over: a download that breaks off can be begun again. Error:
// Unauthenticated.
//
// Cost: a look-up by index.
func (s *Sessions) FindExport(ctx context.Context, secret string) (Offer, error) {
	hash := exportHash(secret)
	row, err := s.cfg.DB.Session.Query().Where(session.TokenHash(hash[:]), session.ExpiresAtGT(s.now())).Only(ctx)
	if ent.IsNotFound(err) {
		return Offer{}, errNoExport
	}
	if err != nil {
		return Offer{}, fmt.Errorf("find export: %w", err)
	}
	return Offer{row.UserID, row.ExpiresAt, row.ID}, nil
}

// EndExport ends an offer: its file was sent whole.
//
// Cost: a deletion by primary key.
func (s *Sessions) EndExport(ctx context.Context, o Offer) error {
	_, err := s.cfg.DB.Session.Delete().Where(session.ID(o.session)).Exec(ctx)
	return rows.Wrap("end export", err)
}

var errNoExport error = refusal.New(refusal.DownloadEnded, "This path was used, or has ended. Ask for another one.")

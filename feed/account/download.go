package account

import (
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/feed/download"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
)

const (
	// ExportPath is where a server has the files that OfferExport names.
	ExportPath = "/account/export"
	// exportTTL is how long a path is good for the one download.
	exportTTL = 5 * time.Minute
	// exportAgent is what the list of sessions says of a path that was not used yet.
	exportAgent = "export of the account"
)

// exportHash stands for the secret of a path in the table of sessions, where the hash of a
// token stands for others. It is another hash function: the secret is no token.
func exportHash(secret string) tokenHash { return sha512.Sum512_256([]byte("export:" + secret)) }

// OfferExport returns the path of a file with all that is kept of the viewer, after
// Confirm. The path is good for one download, and counts and ends as a session does. Errors:
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

// TakeExport returns the user of the secret in a path, which is good no more. Error:
// Unauthenticated.
//
// Cost: a look-up by index and a deletion by primary key.
func (s *Sessions) TakeExport(ctx context.Context, secret string) (int64, error) {
	hash := exportHash(secret)
	row, err := s.cfg.DB.Session.Query().Where(session.TokenHash(hash[:]), session.ExpiresAtGT(s.now())).Only(ctx)
	if err != nil && !ent.IsNotFound(err) {
		return 0, fmt.Errorf("find export: %w", err)
	}
	if row == nil {
		return 0, errNoExport
	}
	n, err := s.cfg.DB.Session.Delete().Where(session.ID(row.ID)).Exec(ctx)
	if err == nil && n == 0 { // another request took it
		err = errNoExport
	}
	return row.UserID, err
}

var errNoExport error = refusal.New(refusal.DownloadEnded, "This path was used, or has ended. Ask for another one.")

// Export writes all that is kept of a user to w, see [download.Write].
func (s *Sessions) Export(ctx context.Context, id int64, w io.Writer) error {
	return download.Write(ctx, s.cfg.DB, id, w)
}

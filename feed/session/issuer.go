package session

import (
	"context"
	"crypto/sha512"
	"fmt"
	"strconv"
	"time"

	"tideline/ent"
	"tideline/ent/session"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
)

// All tokens that an issuer gave a user share one session, so that everything that ends a session
// also ends them. The first token creates the session's row, and so does the first one after a
// sign-out. Tokens issued before a sign-out are refused: its time is in the user's row and is
// copied to the session's row.

// issuerSlack is how much longer the session of an issuer's user lasts than the token that renewed
// it. The row is therefore written about once in that time.
const issuerSlack = 24 * time.Hour

// HashOfIssuer returns what the table of sessions stores for an issuer's user instead of a token's
// hash. It uses another hash function, so that no token has this hash.
func HashOfIssuer(issuer, externalID string) Hash {
	return sha512.Sum512_256([]byte(strconv.Itoa(len(issuer)) + ":" + issuer + externalID))
}

// Renew creates or renews the session of an issuer's user for a token of that issuer. Error:
// Unauthenticated if the user was signed out after the token was issued, or is hidden.
//
// Cost: a short transaction with a lock of the user.
func (s *Store) Renew(ctx context.Context, hash Hash, userID int64, issued, expires time.Time) error {
	ended := 0
	err := rows.InTx(ctx, s.cfg.DB, func(tx *ent.Tx) error {
		u, err := tx.User.Query().Where(user.ID(userID), rows.ForUpdate).Only(ctx) // SignOut changes it
		if err != nil {
			return fmt.Errorf("find user: %w", err)
		}
		var since time.Time
		if u.SignedOutBefore != nil {
			since = *u.SignedOutBefore
		}
		if issued.Before(since) || u.Hidden {
			return ErrEnded
		}
		err = tx.Session.Create().SetTokenHash(hash[:]).SetUserID(userID).SetTokensSince(since.UTC()).
			SetExpiresAt(expires.Add(issuerSlack).UTC().Truncate(time.Millisecond)).
			OnConflictColumns(session.FieldTokenHash).Update(func(s *ent.SessionUpsert) { s.UpdateExpiresAt() }).Exec(ctx)
		if err != nil {
			return fmt.Errorf("open session: %w", err)
		}
		ended, err = endOldest(ctx, tx, userID)
		return err
	})
	if err == nil && ended > 0 {
		s.TellEnded(ctx, userID)
	}
	return err
}

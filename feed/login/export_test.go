package login

import (
	"context"

	"tideline/ent"
	"tideline/feed/session"
)

// StartVerified is the last part of LogIn, after the password was verified.
func (l *Login) StartVerified(ctx context.Context, u *ent.User) (*Auth, error) {
	return l.startVerified(ctx, u)
}

// OfferConfirmed is the last part of OfferExport, after Confirm.
func (l *Login) OfferConfirmed(ctx context.Context, v session.Viewer, verified string) error {
	_, _, err := l.offerConfirmed(ctx, v, verified)
	return err
}

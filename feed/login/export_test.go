package login

import (
	"context"

	"tideline/ent"
)

// StartVerified is the last part of LogIn, after the password was verified.
func (l *Login) StartVerified(ctx context.Context, u *ent.User) (*Auth, error) {
	return l.startVerified(ctx, u)
}

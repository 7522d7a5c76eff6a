package account

import (
	"context"

	"tideline/ent"
	"tideline/live"
)

// Check is what Run does now and then.
func (s *Sessions) Check(ctx context.Context) error { return s.check(ctx) }

// Hear is the part of Run that hears of ended sessions; with it Authenticate remembers.
func (s *Sessions) Hear(ctx context.Context, hub *live.Hub) error {
	s.known.run(true)
	defer s.known.run(false)
	return s.hear(ctx, hub)
}

// TrustFor is how long an answer of SQL is trusted.
const TrustFor = trustFor

// StartVerified is the end of LogIn, once the password was verified.
func (a *Accounts) StartVerified(ctx context.Context, u *ent.User) (*Auth, error) {
	return a.startVerified(ctx, u)
}

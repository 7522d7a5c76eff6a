package account

import (
	"context"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
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

// Statement is a statement of SQL with its arguments.
type Statement struct {
	SQL  string
	Args []any
}

// SearchStatements returns what a search asks besides the users of its page, and what IndexNames
// looks for.
func SearchStatements(of string, users []int64) []Statement {
	return []Statement{
		{wordRange, []any{[]byte("early"), after("early")}},
		{usersWith(of, "early"), []any{rows.List(of, users), []byte("early")}},
		{"SELECT id FROM users WHERE " + schema.Unindexed + " ORDER BY id LIMIT 10", nil},
	}
}

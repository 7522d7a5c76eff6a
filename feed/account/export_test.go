package account

import (
	"context"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/live"
)

// Check is the check that Run makes at intervals.
func (s *Sessions) Check(ctx context.Context) error { return s.check(ctx) }

// Hear is the part of Run that receives ended sessions. While it runs, Authenticate remembers
// sessions.
func (s *Sessions) Hear(ctx context.Context, hub *live.Hub) error {
	s.known.run(true)
	defer s.known.run(false)
	return s.hear(ctx, hub)
}

// TrustFor is how long an answer of SQL is trusted.
const TrustFor = trustFor

// StartVerified is the last part of LogIn, after the password was verified.
func (a *Accounts) StartVerified(ctx context.Context, u *ent.User) (*Auth, error) {
	return a.startVerified(ctx, u)
}

// Statement is an SQL statement with its arguments.
type Statement struct {
	SQL  string
	Args []any
}

// SearchStatements returns the statements of a search, except the query for the users of its
// page, and the statement with which IndexNames finds users.
func SearchStatements(of string, users []int64) []Statement {
	return []Statement{
		{wordRange, []any{[]byte("early"), after("early")}},
		{usersWith(of, "early"), []any{rows.List(of, users), []byte("early")}},
		{"SELECT id FROM users WHERE " + schema.Unindexed + " ORDER BY id LIMIT 10", nil},
	}
}

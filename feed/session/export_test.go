package session

import (
	"context"

	"tideline/live"
)

// Check is the check that Run makes at intervals.
func (s *Store) Check(ctx context.Context) error { return s.check(ctx) }

// Hear is the part of Run that receives ended sessions. While it runs, Authenticate remembers
// sessions.
func (s *Store) Hear(ctx context.Context, hub *live.Hub) error {
	s.known.run(true)
	defer s.known.run(false)
	return s.hear(ctx, hub)
}

// TrustFor is how long an answer of SQL is trusted.
const TrustFor = trustFor

// AllProcesses is the recipient of messages about ended sessions.
const AllProcesses = allProcesses

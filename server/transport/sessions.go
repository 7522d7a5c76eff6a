package transport

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tideline/feed/session"
)

const (
	// sessionCheck is the interval between checks. A subscription learns at once that its session has ended.
	// The checks are for connections without a subscription, and for lost messages.
	sessionCheck = 3 * time.Second
	// sessionChunk is how many sessions one query checks.
	sessionChunk = 1000
)

// sessions ends connections whose grant is over: somebody logged out, here or at another process, the session
// has expired, or an API key no longer acts for the user.
type sessions struct {
	// ended returns the given grants that are over.
	ended func(ctx context.Context, grants []session.Grant) ([]session.Grant, error)
	log   *slog.Logger

	mu      sync.Mutex
	watched map[session.Grant]map[*func()]struct{} // functions that end connections, by grant
}

func newSessions(ended func(context.Context, []session.Grant) ([]session.Grant, error), log *slog.Logger) *sessions {
	return &sessions{ended: ended, log: log, watched: make(map[session.Grant]map[*func()]struct{})}
}

// watch makes run call end when the grant is over, unless the caller calls unwatch before. It does nothing
// for the grant of an anonymous connection.
func (s *sessions) watch(grant session.Grant, end func()) (unwatch func()) {
	if grant == (session.Grant{}) {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[grant] == nil {
		s.watched[grant] = make(map[*func()]struct{})
	}
	s.watched[grant][&end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.watched[grant], &end); len(s.watched[grant]) == 0 {
			delete(s.watched, grant)
		}
	}
}

// run checks all sessions periodically until ctx ends.
//
// Cost: each time a query for every thousand sessions.
func (s *sessions) run(ctx context.Context) error {
	tick := time.NewTicker(sessionCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := s.check(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "sessions not checked", "error", err)
			}
		}
	}
}

// check ends the connections of all sessions that have ended.
func (s *sessions) check(ctx context.Context) error {
	s.mu.Lock()
	grants := make([]session.Grant, 0, len(s.watched))
	for grant := range s.watched {
		grants = append(grants, grant)
	}
	s.mu.Unlock()
	for chunk := range slices.Chunk(grants, sessionChunk) {
		ended, err := s.ended(ctx, chunk)
		if err != nil {
			return err
		}
		for _, grant := range ended {
			s.end(grant)
		}
	}
	return nil
}

// end ends the connections of one grant.
func (s *sessions) end(grant session.Grant) {
	s.mu.Lock()
	var ends []func()
	for end := range s.watched[grant] {
		ends = append(ends, *end)
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

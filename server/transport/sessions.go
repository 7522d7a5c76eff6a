package transport

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// sessionCheck is the period of the watch. A subscription hears of the end of its
	// session at once; the watch is for connections without one, and for messages
	// that were lost.
	sessionCheck = 3 * time.Second
	// sessionChunk is how many sessions one query asks about.
	sessionChunk = 1000
)

// sessions ends the connections of sessions that have ended: somebody logged out,
// here or at another process, or the session has expired.
type sessions struct {
	// ended returns those of the sessions that are over.
	ended func(ctx context.Context, ids []int64) ([]int64, error)
	log   *slog.Logger

	mu      sync.Mutex
	watched map[int64]map[*func()]struct{} // functions that end connections, by session
}

func newSessions(ended func(ctx context.Context, ids []int64) ([]int64, error), log *slog.Logger) *sessions {
	return &sessions{ended: ended, log: log, watched: make(map[int64]map[*func()]struct{})}
}

// watch has the goroutine of run call end when the session is over, unless the
// caller has called unwatch before. It does nothing for session 0, which is that
// of anonymous connections.
func (s *sessions) watch(session int64, end func()) (unwatch func()) {
	if session == 0 {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[session] == nil {
		s.watched[session] = make(map[*func()]struct{})
	}
	s.watched[session][&end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.watched[session], &end); len(s.watched[session]) == 0 {
			delete(s.watched, session)
		}
	}
}

// run watches until ctx ends.
//
// Cost: a query for each thousand sessions, each time.
func (s *sessions) run(ctx context.Context) error {
	tick := time.NewTicker(sessionCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := s.check(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "sessions not checked", "err", err)
			}
		}
	}
}

// check ends the connections of all sessions that have ended.
func (s *sessions) check(ctx context.Context) error {
	s.mu.Lock()
	ids := make([]int64, 0, len(s.watched))
	for id := range s.watched {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for chunk := range slices.Chunk(ids, sessionChunk) {
		ended, err := s.ended(ctx, chunk)
		if err != nil {
			return err
		}
		for _, id := range ended {
			s.end(id)
		}
	}
	return nil
}

// end ends the connections of one session.
func (s *sessions) end(session int64) {
	s.mu.Lock()
	var ends []func()
	for end := range s.watched[session] {
		ends = append(ends, *end)
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// sessionCheck is how often it is asked which sessions have ended. A stream
	// hears of it at once; this is for connections that only wait, and for what
	// was not heard.
	sessionCheck = 3 * time.Second
	// sessionChunk is how many sessions one query asks for.
	sessionChunk = 1000
)

// sessions ends connections whose session has: logged out anywhere, or expired.
// A nil sessions watches nothing.
type sessions struct {
	// ended are those of the sessions that are over.
	ended func(ctx context.Context, ids []int64) ([]int64, error)
	log   *slog.Logger

	mu   sync.Mutex
	held map[int64]map[*func()]struct{} // what ends the connections, by session
}

func newSessions(ended func(ctx context.Context, ids []int64) ([]int64, error), log *slog.Logger) *sessions {
	return &sessions{ended: ended, log: log, held: make(map[int64]map[*func()]struct{})}
}

// hold has end called, in a goroutine of the watch, when the session is over,
// unless forget has been called before. An anonymous connection has session 0.
func (s *sessions) hold(session int64, end func()) (forget func()) {
	if s == nil || session == 0 {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[session] == nil {
		s.held[session] = make(map[*func()]struct{})
	}
	s.held[session][&end] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.held[session], &end); len(s.held[session]) == 0 {
			delete(s.held, session)
		}
	}
}

// run watches until ctx ends. It costs a query per thousand sessions each time.
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

func (s *sessions) check(ctx context.Context) error {
	s.mu.Lock()
	ids := make([]int64, 0, len(s.held))
	for id := range s.held {
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
	for end := range s.held[session] {
		ends = append(ends, *end)
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

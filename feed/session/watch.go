package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/internal/clock"
	"tideline/live"
)

const (
	// checkEvery is how often SQL is asked about the sessions in use and the watched ones.
	checkEvery = 2 * time.Second
	// checkChunk is how many sessions one query asks about.
	checkChunk = 1000

	// allProcesses is the recipient of messages about ended sessions. Every process that runs Run
	// subscribes to it. It is larger than any user id.
	allProcesses = 1 << 62
)

// watches are the calls of Watch that have not been stopped.
type watches struct {
	mu     sync.Mutex
	byUser map[int64]map[*watch]struct{}
}

type watch struct {
	grant Grant
	ended func()
}

// Watch calls ended when the viewer's session has ended or expired, or when the API key may no
// longer act for the user, unless the caller has called stop before. Run must be running. Watch
// calls ended when the process is told; if the message is lost, within two seconds after the end
// while SQL answers. ended must return at once, and may be called more than once. It is never
// called for an anonymous viewer without a key.
//
// Cost: a place in the checks of Run.
func (s *Store) Watch(v Viewer, ended func()) (stop func()) {
	if v.Grant() == (Grant{}) {
		return func() {}
	}
	w, all := &watch{v.Grant(), ended}, &s.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byUser == nil {
		all.byUser = map[int64]map[*watch]struct{}{}
	}
	if all.byUser[v.ID] == nil {
		all.byUser[v.ID] = map[*watch]struct{}{}
	}
	all.byUser[v.ID][w] = struct{}{}
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if delete(all.byUser[v.ID], w); len(all.byUser[v.ID]) == 0 {
			delete(all.byUser, v.ID)
		}
	}
}

// of returns the watches of the users by grant; without users, all watches.
func (w *watches) of(users ...int64) map[Grant][]*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(users) == 0 {
		users = slices.Collect(maps.Keys(w.byUser))
	}
	found := map[Grant][]*watch{}
	for _, user := range users {
		for one := range w.byUser[user] {
			found[one.grant] = append(found[one.grant], one)
		}
	}
	return found
}

// Run notices the sessions that end until ctx ends, and lets Authenticate remember open sessions.
// The hub delivers messages about ended sessions at once. In addition, Run asks SQL every two
// seconds about the sessions in use and the watched ones. Authenticate trusts an answer for five
// seconds. So an ended session is refused after at most five seconds, even if the hub or Redis
// cannot be reached.
//
// Cost: a query every two seconds for each thousand sessions that made a request in the last
// minute or are watched, and two more for API keys.
func (s *Store) Run(ctx context.Context, hub *live.Hub) error {
	s.known.run(true)
	defer s.known.run(false)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.hear(ctx, hub) })
	g.Go(func() error {
		return clock.Every(ctx, checkEvery, func(ctx context.Context) { s.warn(ctx, s.check(ctx)) })
	})
	return g.Wait()
}

func (s *Store) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "sessions not checked; each request asks", "error", err)
	}
}

// check asks SQL about the sessions in use and the watched ones.
func (s *Store) check(ctx context.Context) error {
	grants := s.watches.of()
	for _, id := range s.known.inUse(s.now()) {
		if grant := (Grant{Session: id}); grants[grant] == nil {
			grants[grant] = nil // in use, but not watched
		}
	}
	return s.checkSome(ctx, grants)
}

// checkSome asks SQL about the grants, and ends the watches of those that are no longer valid.
func (s *Store) checkSome(ctx context.Context, grants map[Grant][]*watch) error {
	ctx, cancel := context.WithTimeout(ctx, trustFor)
	defer cancel()
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(grants)), checkChunk) {
		at := s.now()
		ended, err := s.Ended(ctx, chunk)
		if err != nil {
			return err
		}
		for _, grant := range ended {
			s.known.forget(grant.Session)
			for _, one := range grants[grant] {
				one.ended()
			}
		}
		s.known.open(chunk, at)
	}
	return nil
}

// hear learns of ended sessions from the hub.
func (s *Store) hear(ctx context.Context, hub *live.Hub) error {
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default: // a wake-up is already pending
		}
	}
	for {
		told, err := hub.Subscribe(ctx, allProcesses, wake)
		if errors.Is(err, live.ErrClosed) { // the process is stopping
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		s.known.forgetAll()
		s.warn(ctx, s.check(ctx)) // messages may have been lost
		s.take(ctx, told, woken)
		told.Close()
	}
}

// take handles the events of a subscription until it ends. A check that hangs delays it for at most
// trustFor.
func (s *Store) take(ctx context.Context, told *live.Subscription, woken <-chan struct{}) {
	for {
		ended := told.Ended()
		lost, users := false, []int64(nil)
		for event, ok := told.Take(); ok; event, ok = told.Take() {
			switch {
			case event.Kind != live.SessionEnded: // events were lost
				s.known.forgetAll()
				lost = true
			case event.Session == 0: // SQL says which
				s.known.forgetUser(event.Author)
				users = append(users, event.Author)
			default:
				s.known.forget(event.Session)
				for _, one := range s.watches.of(event.Author)[Grant{Session: event.Session}] {
					one.ended()
				}
			}
		}
		switch {
		case lost:
			s.warn(ctx, s.check(ctx))
		case len(users) > 0:
			s.warn(ctx, s.checkSome(ctx, s.watches.of(users...)))
		}
		if ended {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
		}
	}
}

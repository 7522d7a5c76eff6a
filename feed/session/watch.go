package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

	// doubted are users whose watched sessions SQL must be asked about soon; allDoubted stands
	// for all users. recheck has a value while there are any.
	doubted    map[int64]struct{}
	allDoubted bool
	recheck    chan struct{}
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

// doubt has the watched sessions of the users checked soon; without users, all sessions.
func (w *watches) doubt(users ...int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.doubted == nil {
		w.doubted = map[int64]struct{}{}
	}
	for _, user := range users {
		w.doubted[user] = struct{}{}
	}
	w.allDoubted = w.allDoubted || len(users) == 0
	select {
	case w.recheck <- struct{}{}:
	default: // a check is already due
	}
}

// collect returns the watches to check, by grant: of doubted users, or all of them.
func (w *watches) collect(all bool) map[Grant][]*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	users := maps.Keys(w.doubted)
	if all || w.allDoubted {
		users = maps.Keys(w.byUser)
	}
	found := map[Grant][]*watch{}
	for user := range users {
		for one := range w.byUser[user] {
			found[one.grant] = append(found[one.grant], one)
		}
	}
	w.doubted, w.allDoubted = nil, false
	return found
}

// end ends the watches of one session.
func (w *watches) end(user, session int64) {
	var ended []*watch
	w.mu.Lock()
	for one := range w.byUser[user] {
		if one.grant.Session == session {
			ended = append(ended, one)
		}
	}
	w.mu.Unlock()
	for _, one := range ended {
		one.ended()
	}
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
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			var err error
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				err = s.check(ctx)
			case <-s.watches.recheck:
				err = s.checkSome(ctx, s.watches.collect(false))
			}
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "sessions not checked; each request asks", "error", err)
			}
		}
	})
	return g.Wait()
}

// check asks SQL about the sessions in use and the watched ones.
func (s *Store) check(ctx context.Context) error {
	grants := s.watches.collect(true)
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
		s.doubtAll()
		s.take(ctx, told, woken)
		told.Close()
	}
}

// doubtAll trusts no session any more, because messages about ended sessions were lost.
func (s *Store) doubtAll() {
	s.known.forgetAll()
	s.watches.doubt()
}

// take handles the events of a subscription until it ends.
func (s *Store) take(ctx context.Context, told *live.Subscription, woken <-chan struct{}) {
	for {
		ended := told.Ended()
		for event, ok := told.Take(); ok; event, ok = told.Take() {
			switch {
			case event.Kind != live.SessionEnded: // events were lost
				s.doubtAll()
			case event.Session == 0: // SQL says which
				s.known.forgetUser(event.Author)
				s.watches.doubt(event.Author)
			default:
				s.known.forget(event.Session)
				s.watches.end(event.Author, event.Session)
			}
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

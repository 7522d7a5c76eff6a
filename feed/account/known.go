package account

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/internal/clock"
	"tideline/live"
)

const (
	// trustFor is how long a session that was found open is trusted to be open. If the message
	// about the end of a session is lost, this process accepts the session for at most that long.
	trustFor = 5 * time.Second
	// checkEvery is how often SQL is asked about the sessions in use, so that their requests need
	// no query.
	checkEvery = 2 * time.Second
	// checkChunk is how many sessions one query asks about.
	checkChunk = 1000
	// rememberFor is how long an unused session is remembered.
	rememberFor = time.Minute
	// maxKnown bounds the sessions that a process remembers. When there are more, it forgets all
	// of them.
	maxKnown = 20_000

	// allProcesses is the recipient of messages about ended sessions. Every process that runs Run
	// subscribes to it. It is larger than any user id.
	allProcesses = 1 << 62
)

// knownSessions remembers sessions that this process has found open. The zero value remembers
// nothing until Run begins.
type knownSessions struct {
	mu      sync.Mutex
	running bool
	ends    int64 // counts the calls that forgot sessions because one may have ended
	byToken map[tokenHash]*knownSession
	byID    map[int64]tokenHash
}

type knownSession struct {
	viewer        Viewer
	expires       time.Time
	tokensSince   time.Time // older tokens of an issuer are refused
	checked, used time.Time
}

type tokenHash = [sha256.Size]byte

// find returns the session of a token if it can be trusted to be open now. The caller passes ends
// to remember.
func (k *knownSessions) find(token tokenHash, now time.Time) (found knownSession, ends int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byToken[token]
	if s == nil || !clock.Within(trustFor, s.checked, now) || !s.expires.After(now) {
		return found, k.ends, false
	}
	s.used = now
	return *s, k.ends, true
}

// remember stores a session that SQL returned after find returned ends. It does nothing if a
// session has ended since, because it may be this one.
func (k *knownSessions) remember(token tokenHash, s knownSession, ends int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.running || k.ends != ends {
		return
	}
	if k.byToken == nil || len(k.byToken) >= maxKnown {
		k.byToken, k.byID = map[tokenHash]*knownSession{}, map[int64]tokenHash{}
	}
	k.byToken[token], k.byID[s.viewer.Session] = &s, token
}

// forget forgets a session that has ended.
func (k *knownSessions) forget(session int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends++
	k.drop(session)
}

// forgetUser forgets all sessions of a user, because some have ended.
func (k *knownSessions) forgetUser(user int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends++
	for _, s := range k.byToken {
		if s.viewer.ID == user {
			k.drop(s.viewer.Session)
		}
	}
}

func (k *knownSessions) drop(session int64) {
	delete(k.byToken, k.byID[session])
	delete(k.byID, session)
}

// forgetAll forgets all sessions, because any may have ended.
func (k *knownSessions) forgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends++
	k.byToken, k.byID = nil, nil
}

func (k *knownSessions) run(running bool) {
	k.forgetAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = running
}

// inUse returns the ids of recently used sessions and forgets the others.
func (k *knownSessions) inUse(now time.Time) (ids []int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.byToken {
		if clock.Within(rememberFor, s.used, now) {
			ids = append(ids, s.viewer.Session)
		} else {
			k.drop(s.viewer.Session)
		}
	}
	return ids
}

// open records that SQL returned the sessions as open at the given time.
func (k *knownSessions) open(ids []int64, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if s := k.byToken[k.byID[id]]; s != nil && s.checked.Before(at) {
			s.checked = at
		}
	}
}

// Run lets Authenticate remember open sessions until ctx ends. The hub delivers messages about
// ended sessions at once. In addition, Run asks SQL about the sessions in use every two seconds,
// and each answer is trusted for five seconds. So an ended session is refused after at most five
// seconds, even if the hub or Redis cannot be reached.
//
// Cost: a query every two seconds for each thousand sessions that made a request in the last
// minute.
func (s *Sessions) Run(ctx context.Context, hub *live.Hub) error {
	s.known.run(true)
	defer s.known.run(false)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.hear(ctx, hub) })
	g.Go(func() error {
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				if err := s.check(ctx); err != nil && ctx.Err() == nil {
					s.cfg.Logger.WarnContext(ctx, "sessions not checked; each request asks", "error", err)
				}
			}
		}
	})
	return g.Wait()
}

// check asks SQL about the sessions in use.
func (s *Sessions) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trustFor)
	defer cancel()
	ids := s.known.inUse(s.now())
	for chunk := range slices.Chunk(ids, checkChunk) {
		at := s.now()
		grants := make([]Grant, len(chunk))
		for i, id := range chunk {
			grants[i].Session = id
		}
		ended, err := s.Ended(ctx, grants)
		if err != nil {
			return err
		}
		for _, g := range ended {
			s.known.forget(g.Session)
		}
		s.known.open(chunk, at)
	}
	return nil
}

// hear forgets the sessions whose end the hub reports.
func (s *Sessions) hear(ctx context.Context, hub *live.Hub) error {
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
		s.take(ctx, told, woken)
		told.Close()
	}
}

// take handles the events of a subscription until it ends.
func (s *Sessions) take(ctx context.Context, told *live.Subscription, woken <-chan struct{}) {
	for {
		ended := told.Ended()
		for event, ok := told.Take(); ok; event, ok = told.Take() {
			switch {
			case event.Kind != live.SessionEnded: // events were lost
				s.known.forgetAll()
			case event.Session == 0:
				s.known.forgetUser(event.Author)
			default:
				s.known.forget(event.Session)
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

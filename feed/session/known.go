package session

import (
	"context"
	"sync"
	"time"

	"tideline/internal/clock"
)

const (
	// trustFor is how long a session that was found open is trusted to be open. If the message
	// about the end of a session is lost, this process accepts the session for at most that long.
	trustFor = 5 * time.Second
	// rememberFor is how long an unused session is remembered.
	rememberFor = time.Minute
	// maxKnown bounds the sessions that a process remembers. When there are more, it forgets all
	// of them.
	maxKnown = 20_000
)

// knownSessions remembers sessions that this process has found open. The zero value remembers
// nothing until Run begins.
type knownSessions struct {
	mu      sync.Mutex
	running bool
	ends    int64 // counts the calls that forgot sessions because one may have ended
	byHash  map[Hash]*Found
	byID    map[int64]Hash
}

// Found is an open session.
type Found struct {
	Viewer  Viewer
	Expires time.Time
	// TokensSince is the time before which an issuer must not have signed a token of the session.
	TokensSince time.Time

	checked, used time.Time
}

// Find returns the open session of a hash. It returns ok false if there is none.
//
// Cost: as Authenticate.
func (s *Store) Find(ctx context.Context, hash Hash) (found Found, ok bool, err error) {
	now := s.now()
	found, ends, ok := s.known.find(hash, now)
	if ok {
		return found, true, nil
	}
	row, err := s.read(ctx, hash)
	if err != nil || row == nil {
		return found, false, err
	}
	found = Found{Viewer: Viewer{ID: row.UserID, Session: row.ID}, Expires: row.ExpiresAt, checked: now, used: now}
	if row.TokensSince != nil {
		found.TokensSince = *row.TokensSince
	}
	s.known.remember(hash, found, ends)
	return found, true, nil
}

// RecallHash returns the result of Find for a hash that this process remembers. It costs nothing.
func (s *Store) RecallHash(hash Hash) (found Found, ok bool) {
	found, _, ok = s.known.find(hash, s.now())
	return found, ok
}

// Forget makes Find read the session again, because its row has changed.
func (s *Store) Forget(session int64) { s.known.forget(session) }

// find returns the session of a hash if it can be trusted to be open now. The caller passes ends
// to remember.
func (k *knownSessions) find(hash Hash, now time.Time) (found Found, ends int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.byHash[hash]
	if s == nil || !clock.Within(trustFor, s.checked, now) || !s.Expires.After(now) {
		return found, k.ends, false
	}
	s.used = now
	return *s, k.ends, true
}

// remember stores a session that SQL returned after find returned ends. It does nothing if a
// session has ended since, because it may be this one.
func (k *knownSessions) remember(hash Hash, s Found, ends int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.running || k.ends != ends {
		return
	}
	if k.byHash == nil || len(k.byHash) >= maxKnown {
		k.byHash, k.byID = map[Hash]*Found{}, map[int64]Hash{}
	}
	k.byHash[hash], k.byID[s.Viewer.Session] = &s, hash
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
	for _, s := range k.byHash {
		if s.Viewer.ID == user {
			k.drop(s.Viewer.Session)
		}
	}
}

func (k *knownSessions) drop(session int64) {
	delete(k.byHash, k.byID[session])
	delete(k.byID, session)
}

// forgetAll forgets all sessions, because any may have ended.
func (k *knownSessions) forgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends++
	k.byHash, k.byID = nil, nil
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
	for _, s := range k.byHash {
		if clock.Within(rememberFor, s.used, now) {
			ids = append(ids, s.Viewer.Session)
		} else {
			k.drop(s.Viewer.Session)
		}
	}
	return ids
}

// open records that SQL returned the grants as valid at the given time.
func (k *knownSessions) open(grants []Grant, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range grants {
		if s := k.byHash[k.byID[g.Session]]; s != nil && s.checked.Before(at) {
			s.checked = at
		}
	}
}

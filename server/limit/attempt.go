package limit

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// attemptsAtOnce is how many credentials of one address a process looks up at a time; the
	// others wait. It bounds what an address can begin before its first wrong one is counted.
	attemptsAtOnce = 64
	// suspectFor is how long after its last refusal an address stays suspect.
	suspectFor = time.Minute
	// maxSuspects is how many suspect addresses a process remembers. When there are more, it
	// forgets them all.
	maxSuspects = 10_000
)

// suspect is an address that has shown too many wrong credentials.
type suspect struct {
	barred time.Time // until then nothing is looked up for it
	until  time.Time // until then a credential counts before it is looked up
}

// Attempt asks whether a credential that the address shows may be looked up. The caller calls
// done once, after the look-up, and says whether the credential was wrong. Only wrong ones count.
// Once an address has shown too many, it is suspect: it is refused before any work is done, and
// while it is not, each of its credentials counts before the look-up, right or wrong. Credentials
// that are known to be good without a look-up need no Attempt, so other clients at that address
// go on.
//
// Attempt waits while the address has too many look-ups under way, at most until ctx ends.
//
// Cost: none for most addresses, and a round trip to Redis for a wrong credential; the round trip
// comes first for a suspect address. At most a quarter of a second while Redis does not answer.
func (l *Limits) Attempt(ctx context.Context, address string) (done func(wrong bool), refusal *Refusal) {
	if l.rates == nil {
		return func(bool) {}, nil
	}
	leave, ok := l.rates.attempts.enter(ctx, address, attemptsAtOnce, 1)
	if !ok {
		return nil, Busy
	}
	counted, refusal := l.rates.admitSuspect(ctx, address)
	if refusal != nil {
		leave()
		return nil, refusal
	}
	return func(wrong bool) {
		defer leave()
		if wrong && !counted {
			_ = l.rates.countCredential(context.WithoutCancel(ctx), address)
		}
	}, nil
}

// lines has a line for each client that does something, or waits to. The zero lines has none.
type lines struct {
	mu       sync.Mutex
	byClient map[string]*line
}

type line struct {
	room  *semaphore.Weighted
	users int // that have room, or wait for it
}

// enter takes so much of the client's room, at most all of it. ok is false when ctx ended before
// there was as much. The room of a client is always the same. The caller calls leave once.
func (l *lines) enter(ctx context.Context, client string, room, weight int64) (leave func(), ok bool) {
	weight = min(weight, room)
	l.mu.Lock()
	at := l.byClient[client]
	if at == nil {
		if l.byClient == nil {
			l.byClient = make(map[string]*line)
		}
		at = &line{room: semaphore.NewWeighted(room)}
		l.byClient[client] = at
	}
	at.users++
	l.mu.Unlock()
	ok = at.room.Acquire(ctx, weight) == nil
	leave = func() {
		if ok {
			at.room.Release(weight)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if at.users--; at.users == 0 {
			delete(l.byClient, client)
		}
	}
	if !ok {
		leave()
	}
	return leave, ok
}

// admitSuspect counts the credential of a suspect address before it is looked up. For any other
// address it does nothing.
func (l *rateLimiter) admitSuspect(ctx context.Context, address string) (counted bool, refusal *Refusal) {
	now := l.now()
	l.mu.Lock()
	s, found := l.suspects[address]
	if found && !s.until.After(now) {
		delete(l.suspects, address)
		found = false
	}
	l.mu.Unlock()
	if !found {
		return false, nil
	}
	if wait := s.barred.Sub(now); wait > 0 {
		return false, tooMany(wait)
	}
	return true, l.countCredential(ctx, address)
}

// countCredential counts a credential of the address, at all processes together. If that is one
// too many, the address is suspect at this process; the others find out by the next wrong
// credential that they look up.
func (l *rateLimiter) countCredential(ctx context.Context, address string) *Refusal {
	ctx, cancel := context.WithTimeout(ctx, rateTimeout)
	defer cancel()
	refusal := l.take(ctx, "wrong:{"+address+"}", l.rates.wrong, 1)
	if refusal == nil {
		return nil
	}
	barred := l.now().Add(time.Duration(refusal.RetryAfter) * time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.suspects) >= maxSuspects {
		clear(l.suspects)
	}
	l.suspects[address] = suspect{barred: barred, until: barred.Add(suspectFor)}
	return refusal
}

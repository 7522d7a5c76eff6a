package limit

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// attemptsAtOnce is how many credentials of one address a process looks up at a time. Further ones wait.
	// It bounds the look-ups that an address can start before its first wrong one is counted.
	attemptsAtOnce = 64
	// suspectFor is how long an address stays suspect after its last refusal ends.
	suspectFor = time.Minute
	// maxSuspects is how many suspect addresses a process remembers. Beyond that it forgets them all.
	maxSuspects = 10_000
)

// suspect is an address that has shown too many wrong credentials.
type suspect struct {
	barred time.Time // until then all its credentials are refused
	until  time.Time // until then each credential counts before the look-up
}

// Attempt asks whether a credential from the address may be looked up. The caller calls done once after the
// look-up, and says whether the credential was wrong. Only wrong credentials count.
//
// An address that has shown too many wrong ones becomes suspect. It is refused without any look-up for a
// while. After that each of its credentials counts before the look-up, right or wrong, until the address
// is no longer suspect. Credentials known to be good need no look-up and no Attempt, so other clients at
// the address are not affected.
//
// Attempt waits while the address has too many look-ups in progress, at most until ctx ends.
//
// Cost: none for most addresses. A wrong credential costs a round trip to Redis, and every credential of a
// suspect address does. It takes at most a quarter of a second while Redis does not answer.
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

// lines has a weighted semaphore for each client that is active or waiting. The zero value is empty.
type lines struct {
	mu       sync.Mutex
	byClient map[string]*line
}

type line struct {
	room  *semaphore.Weighted
	users int // callers that hold the semaphore or wait for it
}

// enter acquires weight of the client's room, at most all of it. ok is false if ctx ends first. room must be
// the same in every call for a client. The caller calls leave once.
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

// admitSuspect counts the credential of a suspect address before the look-up. It does
// nothing for other addresses.
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

// countCredential counts a credential of the address across all processes. If the rate refuses
// it, the address becomes suspect in this process. Other processes learn that with the next
// wrong credential that they count.
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

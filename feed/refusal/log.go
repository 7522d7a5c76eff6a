package refusal

import (
	"sync"
	"time"
)

// logEvery is how often a kind of refusal is logged.
const logEvery = 10 * time.Second

// Log decides which refusals are logged. Clients decide how often they are refused, so only one
// refusal of a kind is logged in ten seconds. The zero Log is ready to use, and safe for concurrent
// use. It keeps an entry for each kind, so there must be few kinds.
type Log struct {
	mu    sync.Mutex
	kinds map[string]*logged
}

type logged struct {
	next    time.Time // when the next one may be logged
	omitted int       // since the last logged one
}

// Due reports whether a refusal of the kind, at the time now, is to be logged. omitted is how many
// refusals of the kind were not logged since the last one that was.
func (l *Log) Due(kind string, now time.Time) (omitted int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = map[string]*logged{}
	}
	k := l.kinds[kind]
	if k == nil {
		k = &logged{}
		l.kinds[kind] = k
	}
	if now.Before(k.next) {
		k.omitted++
		return 0, false
	}
	omitted = k.omitted
	*k = logged{next: now.Add(logEvery)}
	return omitted, true
}

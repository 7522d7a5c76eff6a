package live

import "time"

// TurnsLast sets how long a turn lasts. Call it before Run.
func (h *Hub) TurnsLast(d time.Duration) { h.turns.lasts = d }

// Waiting returns how many events can be taken.
func (s *Subscription) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Subscribers returns how many subscriptions are open, those that still wait in
// Subscribe included.
func (h *Hub) Subscribers() (n int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, subs := range h.subs {
		n += len(subs)
	}
	return n
}

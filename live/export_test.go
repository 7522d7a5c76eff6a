package live

import "time"

// LinesStand sets how long a line stands for one message. Call it before Subscribe.
func (h *Hub) LinesStand(d time.Duration) { h.lines.stands = d }

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

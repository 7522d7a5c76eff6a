package live

import "time"

// SetMaxQueueWait sets how long an author's messages wait for one message. Call it before Subscribe.
func (h *Hub) SetMaxQueueWait(d time.Duration) { h.queues.maxWait = d }

// Waiting returns the number of events in the buffer.
func (s *Subscription) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Subscribers returns the number of open subscriptions, including those that still wait
// in Subscribe.
func (h *Hub) Subscribers() (n int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, subs := range h.subs {
		n += len(subs)
	}
	return n
}

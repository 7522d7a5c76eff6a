package counts

import "context"

// Look is what Run does again and again.
func (c *Counts) Look(ctx context.Context) { c.look(ctx) }

// Watched returns how many watches there are, and posts that they watch.
func (c *Counts) Watched() (watches, posts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches), len(c.order)
}

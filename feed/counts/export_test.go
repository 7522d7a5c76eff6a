package counts

import "context"

// Look does one round of Run.
func (c *Counts) Look(ctx context.Context) { c.look(ctx) }

// Watched returns the number of watches and the number of posts that they watch.
func (c *Counts) Watched() (watches, posts int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watches), len(c.order)
}

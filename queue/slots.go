package queue

import "context"

// slots bounds how many attempts of a pool run at once in this process. Each attempt puts one
// element into the channel. Only the reader of the pool takes slots, so a free slot stays free
// until the reader takes it.
type slots chan struct{}

// wait waits for a free slot without taking it. It returns false if ctx ends first.
func (s slots) wait(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case s <- struct{}{}:
		<-s
		return true
	case <-ctx.Done():
		return false
	}
}

// free returns how many slots are free.
func (s slots) free() int { return cap(s) - len(s) }

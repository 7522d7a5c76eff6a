// Package lru keeps the most recently used values within a number of bytes.
//
// The caller says how many bytes a value takes. A cache does not count how often a
// value is used: a value that was put in last can be read back at once, however
// popular others are. Clients that register a document and then send its hash rely
// on that.
package lru

import (
	"container/list"
	"sync"
)

// Cache keeps values by their keys. It is safe for concurrent use.
type Cache[V any] struct {
	max int

	mu    sync.Mutex
	used  int
	order *list.List // of *entry[V], most recent first
	byKey map[string]*list.Element
}

type entry[V any] struct {
	key   string
	value V
	bytes int
}

// New returns an empty cache of at most that many bytes.
func New[V any](maxBytes int) *Cache[V] {
	return &Cache[V]{max: maxBytes, order: list.New(), byKey: make(map[string]*list.Element)}
}

// Get returns the value of the key and counts as a use of it; ok is false when
// there is none.
//
// Cost: constant.
func (c *Cache[V]) Get(key string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.byKey[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(found)
	return found.Value.(*entry[V]).value, true
}

// Put stores the value, which takes the given number of bytes, and drops the least
// recently used values to make room. It does nothing when the key has a value
// already, or when the value alone is larger than the cache.
//
// Cost: constant for each value that is dropped.
func (c *Cache[V]) Put(key string, value V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil || bytes > c.max {
		return
	}
	c.byKey[key] = c.order.PushFront(&entry[V]{key, value, bytes})
	for c.used += bytes; c.used > c.max; {
		oldest := c.order.Remove(c.order.Back()).(*entry[V])
		delete(c.byKey, oldest.key)
		c.used -= oldest.bytes
	}
}

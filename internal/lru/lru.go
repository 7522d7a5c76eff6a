// Package lru keeps the most recently used values within a limit of bytes.
//
// The caller states the size of each value. The cache does not count how often a value is used, so
// the value put in last can always be read back at once, however popular the others are. Clients
// that register a document and then send its hash rely on that.
package lru

import (
	"container/list"
	"sync"
)

// Cache stores values by key. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	max int

	mu    sync.Mutex
	used  int
	order *list.List // of *entry[K, V], most recent first
	byKey map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

// New returns an empty cache of at most maxBytes.
func New[K comparable, V any](maxBytes int) *Cache[K, V] {
	return &Cache[K, V]{max: maxBytes, order: list.New(), byKey: make(map[K]*list.Element)}
}

// Get returns the value of the key and marks it as most recently used. ok is false if there is
// none.
//
// Cost: constant.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.byKey[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(found)
	return found.Value.(*entry[K, V]).value, true
}

// Has reports whether the key has a value. It does not count as a use.
func (c *Cache[K, V]) Has(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key] != nil
}

// Put stores a value of the given size, replaces an earlier value of the key, and drops the least
// recently used values to make room. It does not store a value that is larger than the cache.
//
// Cost: constant for each dropped value.
func (c *Cache[K, V]) Put(key K, value V, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.byKey[key])
	if bytes > c.max {
		return
	}
	c.byKey[key] = c.order.PushFront(&entry[K, V]{key, value, bytes})
	for c.used += bytes; c.used > c.max; {
		c.drop(c.order.Back())
	}
}

// Remove drops the value of the key, if there is one.
func (c *Cache[K, V]) Remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(c.byKey[key])
}

// drop removes an element; nil is ignored. The caller holds the lock.
func (c *Cache[K, V]) drop(e *list.Element) {
	if e == nil {
		return
	}
	dropped := c.order.Remove(e).(*entry[K, V])
	delete(c.byKey, dropped.key)
	c.used -= dropped.bytes
}

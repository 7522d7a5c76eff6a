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

// New returns an empty cache of at most that many bytes.
func New[K comparable, V any](maxBytes int) *Cache[K, V] {
	return &Cache[K, V]{max: maxBytes, order: list.New(), byKey: make(map[K]*list.Element)}
}

// Get returns the value of the key and counts as a use of it; ok is false when
// there is none.
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

// Has reports whether there is a value of the key. It does not count as a use.
func (c *Cache[K, V]) Has(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key] != nil
}

// Put stores the value, which takes the given number of bytes, in place of an earlier one
// of the key, and drops the least recently used values to make room. A value that alone is
// larger than the cache is not stored.
//
// Cost: constant for each value that is dropped.
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

// drop drops a value. The caller holds the lock. Nil is none.
func (c *Cache[K, V]) drop(e *list.Element) {
	if e == nil {
		return
	}
	dropped := c.order.Remove(e).(*entry[K, V])
	delete(c.byKey, dropped.key)
	c.used -= dropped.bytes
}

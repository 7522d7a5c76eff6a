package exec

import (
	"container/list"
	"sync"
)

// bytesPerQueryByte is what a parsed document takes in memory for every byte of its text, roughly.
const bytesPerQueryByte = 40

// documentCache keeps the most recently used documents by their text, bounded in bytes.
type documentCache struct {
	max int

	mu    sync.Mutex
	used  int
	order *list.List // of *document, most recent first
	byKey map[string]*list.Element
}

func newDocumentCache(maxBytes int) *documentCache {
	return &documentCache{max: maxBytes, order: list.New(), byKey: map[string]*list.Element{}}
}

func (c *documentCache) get(query string) *document {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.byKey[query]
	if el == nil {
		return nil
	}
	c.order.MoveToFront(el)
	return el.Value.(*document)
}

func (c *documentCache) put(doc *document) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[doc.text] != nil {
		return
	}
	c.byKey[doc.text] = c.order.PushFront(doc)
	c.used += len(doc.text) * bytesPerQueryByte
	for c.used > c.max {
		oldest := c.order.Back()
		old := c.order.Remove(oldest).(*document)
		delete(c.byKey, old.text)
		c.used -= len(old.text) * bytesPerQueryByte
	}
}

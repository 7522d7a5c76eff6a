package batch

import (
	"context"
	"errors"
)

// maxKeys is the largest number of keys in one call.
const maxKeys = 16

// Loader combines concurrent lookups into one call.
type Loader[K, V any] struct {
	find    func(context.Context, []K) ([]V, error)
	batcher Batcher[*lookup[K, V]]
}

// NewLoader returns a Loader that calls find with up to 16 keys. The result must have one value
// for each key, in the same order. A call that hangs delays its own callers, and others for at most
// MaxWait.
func NewLoader[K, V any](find func(context.Context, []K) ([]V, error)) *Loader[K, V] {
	return &Loader[K, V]{find, Batcher[*lookup[K, V]]{MaxWait: MaxWait}}
}

// lookup is a call of Load.
type lookup[K, V any] struct {
	ctx   context.Context
	key   K
	value V
	err   error
}

// errNotLookedUp is the error of a lookup until find has returned.
var errNotLookedUp = errors.New("the key was not looked up")

// Load returns the value of a key. The lookup begins after the call of Load. An error of find is
// returned to all callers in the batch. Load does not return early when its context ends.
func (l *Loader[K, V]) Load(ctx context.Context, key K) (V, error) {
	mine := &lookup[K, V]{ctx: ctx, key: key, err: errNotLookedUp}
	l.batcher.Do(mine, maxKeys, l.findAll)
	return mine.value, mine.err
}

func (l *Loader[K, V]) findAll(batch []*lookup[K, V]) {
	keys, contexts := make([]K, len(batch)), make([]context.Context, len(batch))
	for i, one := range batch {
		keys[i], contexts[i] = one.key, one.ctx
	}
	ctx, stop := Context(contexts)
	defer stop()
	values, err := l.find(ctx, keys)
	for i, one := range batch {
		if one.err = err; err == nil {
			one.value = values[i]
		}
	}
}

package live

import (
	"context"
	"sync/atomic"

	"tideline/internal/batch"
	"tideline/internal/trace"
)

// Batch has the recipients of one message in this process, and what they share. It is
// created when the message arrives.
type Batch struct {
	// Users are the recipients, ascending. They must not be changed.
	Users []int64

	// Shared holds the data that all readers of the event need. It is read once. The package that
	// reads the events chooses its type.
	Shared batch.Shared[any]

	place  *trace.Place // in the message's trace; nil if it has none
	joined atomic.Bool
}

// Trace makes ctx, a context of trace.Joinable, join the trace of the message. Only the first
// reader of the batch joins, because all readers do the same work. For the others, and on a nil
// batch, ctx leaves its trace.
func (b *Batch) Trace(ctx context.Context) {
	if b == nil || b.place == nil || !b.joined.CompareAndSwap(false, true) {
		trace.Join(ctx, nil)
		return
	}
	trace.Join(ctx, b.place)
}

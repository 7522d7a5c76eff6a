package limit

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// ErrBusy refuses a large message while there are too many of them.
var ErrBusy = errors.New("too many large requests at once")

// ReadAll reads to the end, beginning with a buffer of size bytes. The first free
// bytes are read at no charge. What the buffer needs beyond them is taken from the
// budget, which all large messages of a process share, until release is called. The
// caller calls release, once or more, when it no longer needs what it read. Nobody
// waits for the budget. Errors: ErrBusy when it has no room, or the reader's own;
// nothing is taken then.
func ReadAll(r io.Reader, budget *semaphore.Weighted, size, free int) (data []byte, release func(), err error) {
	taken := int64(0)
	defer func() {
		if err != nil {
			budget.Release(taken)
			data, taken = nil, 0
		}
		if release = func() {}; taken > 0 {
			release = sync.OnceFunc(func() { budget.Release(taken) })
		}
	}()
	data = make([]byte, 0, min(size, free))
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(data) < cap(data) {
			continue
		}
		grown := make([]byte, len(data), 2*cap(data))
		if cap(grown) > free {
			more := int64(cap(grown)) - taken
			if !budget.TryAcquire(more) {
				return nil, nil, ErrBusy
			}
			taken += more
		}
		copy(grown, data)
		data = grown
	}
}

// InTurn calls do when the line has room for its weight; ok is false when ctx ends
// before.
func InTurn(ctx context.Context, line *semaphore.Weighted, weight int64, do func()) (ok bool) {
	if line.Acquire(ctx, weight) != nil {
		return false
	}
	defer line.Release(weight)
	do()
	return true
}

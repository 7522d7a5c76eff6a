package limit

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"
)

// ErrBusy refuses a large message while others use up the budget.
var ErrBusy = errors.New("too many large requests at once")

// ReadAll reads to the end of r, beginning with a buffer of size bytes. The first free bytes of the
// buffer are not charged. Larger buffers are charged to the budget, which all large messages of a process
// share, until release is called. The caller calls release, once or more, when it no longer needs the
// data. ReadAll never waits for the budget. Errors: ErrBusy if the budget is used up, or the reader's
// error; nothing stays charged then.
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

// InTurn acquires the weight from line and calls do. ok is false if ctx ends first.
func InTurn(ctx context.Context, line *semaphore.Weighted, weight int64, do func()) (ok bool) {
	if line.Acquire(ctx, weight) != nil {
		return false
	}
	defer line.Release(weight)
	do()
	return true
}

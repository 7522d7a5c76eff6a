package home

import (
	"context"
	"slices"
	"sync"
)

// maxPendingWrites bounds how many writes a process remembers. Further writes are not remembered: they
// appear when their jobs are done.
const maxPendingWrites = 10_000

// pendingWrites remembers writes to users' own feeds that Redis did not accept, if Redis did not
// accept a drop of the feed either. The user's next read through this process repeats the writes
// before it reads the feeds. The job of the write would also repeat it, but maybe only minutes later.
// The zero value is empty. It holds at most maxPendingWrites, and is safe for concurrent use.
type pendingWrites struct {
	mu     sync.Mutex // guards the fields below
	byUser map[int64][]pendingWrite
	n      int   // number of writes, of all users
	newest int64 // the number of the newest write
}

type pendingWrite struct {
	number int64
	do     func(context.Context) error
}

// remember remembers a write to the user's feeds. do may be called several times, also concurrently.
func (p *pendingWrites) remember(user int64, do func(context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == maxPendingWrites {
		return
	}
	if p.byUser == nil {
		p.byUser = map[int64][]pendingWrite{}
	}
	p.n++
	p.newest++
	p.byUser[user] = append(p.byUser[user], pendingWrite{p.newest, do})
}

// repeat repeats the user's writes, and reports whether there were any. withTimeout returns the context
// that bounds the time of all these writes together. After an error the feeds may lack some writes,
// and all writes stay remembered.
func (p *pendingWrites) repeat(ctx context.Context, user int64, withTimeout func(context.Context) (context.Context, context.CancelFunc)) (repeated bool, err error) {
	p.mu.Lock()
	writes := slices.Clone(p.byUser[user])
	p.mu.Unlock()
	if len(writes) == 0 {
		return false, nil
	}
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	for _, w := range writes {
		if err := w.do(ctx); err != nil {
			return true, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// In the meantime, another read may have repeated and removed the same writes, and new writes may
	// have been remembered.
	left := slices.DeleteFunc(slices.Clone(p.byUser[user]), func(w pendingWrite) bool { return w.number <= writes[len(writes)-1].number })
	p.n -= len(p.byUser[user]) - len(left)
	if p.byUser[user] = left; len(left) == 0 {
		delete(p.byUser, user)
	}
	return true, nil
}

package home

import (
	"context"
	"slices"
	"sync"
)

// maxPendingWrites bounds how many writes a process remembers. Any further write waits for its
// job.
const maxPendingWrites = 10_000

// pendingWrites remembers changes of users to their own feeds for which Redis accepted neither
// the change nor the drop of the feed. A user's next read through this process repeats them
// before it trusts the feeds: the job of the change may be tried again only minutes later. The
// zero value is empty. It holds at most 10,000 changes, and is safe for concurrent use.
type pendingWrites struct {
	mu     sync.Mutex // guards the fields below
	byUser map[int64][]pendingWrite
	n      int   // how many there are, of all users
	last   int64 // the number of the newest
}

type pendingWrite struct {
	number int64
	do     func(context.Context) error
}

// remember remembers a write of the user. The write must be repeatable.
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
	p.last++
	p.byUser[user] = append(p.byUser[user], pendingWrite{p.last, do})
}

// repeat repeats the user's writes; limit bounds the time of all together. It reports whether
// there were any. After an error the feeds may lack some writes, and all stay remembered.
func (p *pendingWrites) repeat(ctx context.Context, user int64, limit func(context.Context) (context.Context, context.CancelFunc)) (any bool, err error) {
	p.mu.Lock()
	writes := slices.Clone(p.byUser[user])
	p.mu.Unlock()
	if len(writes) == 0 {
		return false, nil
	}
	ctx, cancel := limit(ctx)
	defer cancel()
	for _, w := range writes {
		if err := w.do(ctx); err != nil {
			return true, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Another read may have repeated the same writes meanwhile, and there may be new ones.
	left := slices.DeleteFunc(slices.Clone(p.byUser[user]), func(w pendingWrite) bool { return w.number <= writes[len(writes)-1].number })
	p.n -= len(p.byUser[user]) - len(left)
	if p.byUser[user] = left; len(left) == 0 {
		delete(p.byUser, user)
	}
	return true, nil
}

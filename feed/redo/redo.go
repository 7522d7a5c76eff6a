// Package redo remembers what users did to their own feeds where Redis took neither that nor
// the drop of the feed. A user's next read through this process does it again before it
// trusts the feeds: the job of the change may be tried again only minutes later.
package redo

import (
	"context"
	"slices"
	"sync"
)

// most bounds how many writes a process remembers for its users' next reads. One
// that finds no room waits for its job.
const most = 10_000

// Writes are those of a process, at most 10,000. The zero value has none. It is safe for
// concurrent use.
type Writes struct {
	mu     sync.Mutex
	byUser map[int64][]write
	n      int   // of all users
	last   int64 // number
}

type write struct {
	number int64
	do     func(context.Context) error
}

// Remember remembers a write of the user, which can be done more than once.
func (o *Writes) Remember(user int64, do func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n == most {
		return
	}
	if o.byUser == nil {
		o.byUser = map[int64][]write{}
	}
	o.n++
	o.last++
	o.byUser[user] = append(o.byUser[user], write{o.last, do})
}

// Repeat does the user's writes again, in the time that limit gives all of them. It reports
// whether there were any. On an error the feeds lack some, and all stay remembered.
func (o *Writes) Repeat(ctx context.Context, user int64, limit func(context.Context) (context.Context, context.CancelFunc)) (any bool, err error) {
	o.mu.Lock()
	writes := slices.Clone(o.byUser[user])
	o.mu.Unlock()
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
	o.mu.Lock()
	defer o.mu.Unlock()
	// Another read may have done the same meanwhile, and there may be new ones.
	left := slices.DeleteFunc(slices.Clone(o.byUser[user]), func(w write) bool { return w.number <= writes[len(writes)-1].number })
	o.n -= len(o.byUser[user]) - len(left)
	if o.byUser[user] = left; len(left) == 0 {
		delete(o.byUser, user)
	}
	return true, nil
}

package timeline

import (
	"context"
	"fmt"
)

// earlyCap bounds the list of posts that Show put into a Ready inbox before their fan-out, in
// characters: a hundred ids.
const earlyCap = 100 * 17

// Showing is what a reader has read from SQL for one feed and is about to show.
type Showing struct {
	Key Key
	// Read is the coverage of the feed before the reader read SQL.
	Read Coverage
	IDs  []int64
}

// Show puts ids into feeds that are Ready or Building. A reader calls it with posts that it has
// read from SQL, before it shows them. Their fan-out may not have reached the feed, and a builder
// may have read SQL before they were committed. A feed that becomes Ready must not lack a post that
// was shown before.
//
// Show puts nothing into a feed that was rebuilt, or from which an id was removed, since Read. The
// reader may have read the ids before they were removed. Show returns these feeds with their
// current coverage. Read SQL again for them, and call Show again. A Missing feed does not change,
// because its builder will read SQL after the caller did.
//
// Cost: one round trip with one script per feed, O(n log size), and another script per outbox.
func (f *Feeds) Show(ctx context.Context, shown ...Showing) (again map[Key]Coverage, err error) {
	var calls []call
	var last []int // index of each feed's last call
	for _, showing := range shown {
		if err := checkIDs(showing.IDs...); err != nil {
			return nil, fmt.Errorf("show in %s: %w", showing.Key, err)
		}
		limit := f.cfg.cap(showing.Key)
		args := []any{formatID(showing.Read.Epoch), formatID(showing.Read.Generation), limit, slack(limit), earlyCap}
		calls = append(calls, withLatestRaised(showing.Key, showing.IDs, call{showScript, showing.Key.keys(), appendIDs(args, showing.IDs)})...)
		last = append(last, len(calls)-1)
	}
	done, err := f.run(ctx, calls...)
	if err != nil {
		return nil, fmt.Errorf("show in %d feeds: %w", len(shown), err)
	}
	for i, showing := range shown {
		reply, err := done[last[i]].StringSlice()
		if err != nil || len(reply) == 0 {
			if err != nil {
				return nil, fmt.Errorf("show in %s: %w", showing.Key, err)
			}
			continue
		}
		var now Coverage
		if now.Epoch, err = parseID(reply[0]); err == nil {
			now.Generation, err = parseID(reply[1])
		}
		if err != nil {
			return nil, fmt.Errorf("show in %s: %w", showing.Key, err)
		}
		if again == nil {
			again = map[Key]Coverage{}
		}
		again[showing.Key] = now
	}
	return again, nil
}

package timeline

import (
	"context"
	"fmt"
)

// earlyCap bounds the list of the posts that Show put into a ready inbox before their
// fan-out came, in characters: a hundred ids.
const earlyCap = 100 * 17

// Showing is what a reader has read in SQL, and is about to show, of one feed.
type Showing struct {
	Key Key
	// Read is the coverage of the feed from before the reader read SQL.
	Read Coverage
	IDs  []int64
}

// Show puts ids into feeds that are Ready or Building: a reader calls it with posts
// that it has read in SQL, before it shows them. Their fan-out may not have come, and
// a builder may have read SQL before they were committed. A feed that becomes Ready
// must not lack what was shown while it was not.
//
// Show puts nothing into a feed from which something was removed since its coverage
// was read, or which is another one by now: the reader may have read the ids before
// they were removed. It returns these feeds with their present coverage: read SQL
// again, and call Show again. A Missing feed stays as it is, because its builder will
// read SQL later than the caller did.
//
// Cost: one round trip of a script a feed, O(n log size), and another of an outbox.
func (s *Store) Show(ctx context.Context, shown ...Showing) (again map[Key]Coverage, err error) {
	var calls []call
	var last []int // of the calls of each feed
	for _, f := range shown {
		if err := checkIDs(f.IDs...); err != nil {
			return nil, fmt.Errorf("show in %s: %w", f.Key, err)
		}
		limit := s.cfg.cap(f.Key)
		args := []any{formatID(f.Read.Epoch), formatID(f.Read.Generation), limit, slack(limit), earlyCap}
		calls = append(calls, withLatestRaised(f.Key, f.IDs, call{showScript, f.Key.keys(), appendIDs(args, f.IDs)})...)
		last = append(last, len(calls)-1)
	}
	done, err := s.run(ctx, calls...)
	if err != nil {
		return nil, fmt.Errorf("show in %d feeds: %w", len(shown), err)
	}
	for i, f := range shown {
		reply, err := done[last[i]].StringSlice()
		if err != nil || len(reply) == 0 {
			if err != nil {
				return nil, fmt.Errorf("show in %s: %w", f.Key, err)
			}
			continue
		}
		var now Coverage
		if now.Epoch, err = parseID(reply[0]); err == nil {
			now.Generation, err = parseID(reply[1])
		}
		if err != nil {
			return nil, fmt.Errorf("show in %s: %w", f.Key, err)
		}
		if again == nil {
			again = map[Key]Coverage{}
		}
		again[f.Key] = now
	}
	return again, nil
}

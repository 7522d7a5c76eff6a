package timeline

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"
)

// State says what a feed is good for.
type State uint8

const (
	// Missing: nothing is known; SQL has the answer.
	Missing State = iota
	// Building: somebody has begun to fill it; SQL has the answer.
	Building
	// Ready: complete from the newest id down to the floor.
	Ready
)

func (s State) String() string {
	switch s {
	case Building:
		return "building"
	case Ready:
		return "ready"
	default:
		return "missing"
	}
}

// Coverage says what a feed has. Of a Missing feed, everything else is zero.
type Coverage struct {
	// Epoch differs from one build of the feed to the next.
	Epoch int64
	// Floor is the id down to which the feed is complete, itself included; 0:
	// to the beginning. Within an epoch it only rises.
	Floor int64
	State State
	// Generation is how often something was removed, or Reread. Who kept what SQL says of the
	// posts reads it again when it has risen.
	Generation int64
}

// Range is a range of ids below Before and above After, read from one of its ends.
type Range struct {
	// Before and After are exclusive bounds; 0 leaves that end open.
	Before, After int64
	// Limit is how many ids at most. 0 asks for the coverage alone.
	Limit int
	// Ascending reads from the oldest id of the range upwards, not from the newest
	// downwards.
	Ascending bool
}

// Upper is the upper bound as a number that every id is below of when it is open.
func (r Range) Upper() int64 {
	if r.Before == 0 {
		return math.MaxInt64
	}
	return r.Before
}

// Behind is what is left of the range behind the id, in the order of the range.
func (r Range) Behind(id int64) Range {
	if r.Ascending {
		r.After = id
	} else {
		r.Before = id
	}
	return r
}

// First is the range with another limit.
func (r Range) First(n int) Range {
	r.Limit = n
	return r
}

// Page returns ids of the feed in the order of the range, and its coverage, both of
// the same instant. Ids come only from a Ready feed, and never from below its
// floor. Fewer ids than the limit mean that the feed has no more in the range; when
// the floor is above r.After, SQL may have more.
//
// Before the Page of an inbox, call Visit: it finds out whether the inbox was pushed
// to all the time. If the feed is not Ready, call Begin.
//
// Cost: one round trip, O(log size + Limit).
func (s *Store) Page(ctx context.Context, k Key, r Range) ([]int64, Coverage, error) {
	parts, err := s.Pages(ctx, []Key{k}, r)
	if err != nil {
		return nil, Coverage{}, err
	}
	return parts[0].IDs, parts[0].Coverage, nil
}

// Settle asks for the feed to be settled, in the same step in which a page of it is read: its
// floor rises to the id At, and so far that the feed keeps at most Keep ids above Above. From
// there on upwards a reader can know the feed by its ids. What is pushed below comes out of
// order, and is counted.
type Settle struct {
	Above, At int64
	Keep      int
}

// Settled is a feed that has been settled: its floor, and how many ids were ever pushed below
// its floor. The number does not change while none comes that lies below the floor.
type Settled struct{ Floor, Under int64 }

// args are the arguments of the page script.
func (r Range) args() ([]any, error) {
	if r.Limit < 0 || r.Before < 0 || r.After < 0 {
		return nil, fmt.Errorf("negative bound in %+v", r)
	}
	lowest, ascending := "-inf", "0"
	if r.Before > 0 {
		lowest = "(-" + formatID(r.Before)
	}
	if r.Ascending {
		ascending = "1"
	}
	return []any{lowest, formatID(r.After), r.Limit, ascending}, nil
}

// Part is what one feed has in a range.
type Part struct {
	IDs []int64
	Coverage
	// Settled is what a Settle has made of the feed after IDs and Coverage were read; else zero.
	Settled Settled
}

// Pages is Page of several feeds in one round trip, in their order.
//
// Cost: one round trip, O(log size + Limit) a feed.
func (s *Store) Pages(ctx context.Context, feeds []Key, r Range) ([]Part, error) {
	if len(feeds) == 0 {
		return nil, nil
	}
	args, err := r.args()
	if err != nil {
		return nil, fmt.Errorf("page of %s: %w", feeds[0], err)
	}
	done, err := s.run(ctx, onFeeds(pageScript, feeds, args...)...)
	if err != nil {
		return nil, fmt.Errorf("page of %s: %w", feeds[0], err)
	}
	parts := make([]Part, len(feeds))
	for i, cmd := range done {
		if parts[i], err = part(cmd); err != nil {
			return nil, fmt.Errorf("page of %s: %w", feeds[i], err)
		}
	}
	return parts, nil
}

// Above selects the ids of a feed above an id.
type Above struct {
	Key   Key
	After int64
}

// PagesAbove is Page of several feeds in one round trip. Of each it reads at most
// limit ids, from the newest down to an id of its own.
//
// Cost: one round trip, O(log size + limit) a feed.
func (s *Store) PagesAbove(ctx context.Context, feeds []Above, limit int) ([]Part, error) {
	calls := make([]call, len(feeds))
	for i, f := range feeds {
		if f.After < 0 || limit < 0 {
			return nil, fmt.Errorf("page of %s: negative bound", f.Key)
		}
		calls[i] = call{pageScript, f.Key.keys(), []any{"-inf", formatID(f.After), limit, "0"}}
	}
	done, err := s.run(ctx, calls...)
	if err != nil {
		return nil, fmt.Errorf("pages of feeds: %w", err)
	}
	parts := make([]Part, len(feeds))
	for i, cmd := range done {
		if parts[i], err = part(cmd); err != nil {
			return nil, fmt.Errorf("page of %s: %w", feeds[i].Key, err)
		}
	}
	return parts, nil
}

// Digest digests how many ids ever came to outboxes at or below high. Two digests that are
// the same say that none came there in between: no id is added below a bound that is settled
// without being counted. All says that each of the outboxes counts; otherwise those do that have
// ids above low, and not above high. It fails if an outbox that counts is not Ready.
//
// Other readers settle other bounds, so what comes out of order may change a digest although it
// lies above high.
//
// Cost: one round trip, O(log size) a feed.
func (s *Store) Digest(ctx context.Context, outboxes []Key, low, high int64, all bool) (digest uint64, err error) {
	done, err := s.run(ctx, onFeeds(digestScript, outboxes, formatID(high), formatID(low))...)
	if err != nil {
		return 0, fmt.Errorf("digest of %d feeds: %w", len(outboxes), err)
	}
	for i, cmd := range done {
		reply, err := cmd.StringSlice()
		if err != nil {
			return 0, fmt.Errorf("digest of %s: %w", outboxes[i], err)
		}
		if len(reply) != 4 || reply[0] != "ready" {
			return 0, fmt.Errorf("digest of %s: it is not ready", outboxes[i])
		}
		if all || reply[3] != "0" {
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, outboxes[i], reply[1:3]) // into memory
			digest += h.Sum64()
		}
	}
	return digest, nil
}

// part decodes the answer of the page script.
func part(cmd *redis.Cmd) (p Part, err error) {
	var rest []any
	p.Coverage, rest, err = coverage(cmd)
	if err != nil || p.State == Missing {
		return p, err
	}
	if settled, _ := rest[1].([]any); len(settled) == 2 {
		if p.Settled.Floor, err = parseID(settled[0]); err == nil {
			p.Settled.Under, err = parseID(settled[1])
		}
		if err != nil {
			return Part{}, err
		}
	}
	if p.State != Ready {
		return p, nil
	}
	members, ok := rest[0].([]any)
	if !ok {
		return Part{}, fmt.Errorf("redis answered %T", rest[0])
	}
	p.IDs = make([]int64, len(members))
	for i, m := range members {
		if p.IDs[i], err = parseID(m); err != nil {
			return Part{}, err
		}
	}
	return p, nil
}

// coverage decodes the first four parts of an answer of six, and returns the others.
func coverage(cmd *redis.Cmd) (cov Coverage, rest []any, err error) {
	reply, err := cmd.Slice()
	if err != nil || len(reply) == 0 {
		return Coverage{}, nil, err
	}
	if len(reply) != 6 {
		return Coverage{}, nil, fmt.Errorf("redis answered %d parts", len(reply))
	}
	cov.State = Building
	if reply[0] == "ready" {
		cov.State = Ready
	}
	if cov.Epoch, err = parseID(reply[1]); err != nil {
		return Coverage{}, nil, err
	}
	if cov.Floor, err = parseID(reply[2]); err != nil {
		return Coverage{}, nil, err
	}
	if cov.Generation, err = parseID(reply[3]); err != nil {
		return Coverage{}, nil, err
	}
	return cov, reply[4:], nil
}

// Add puts ids into a feed that is Ready or Building, and does nothing to one that is
// Missing. They must be all the ids that the feed gains above its floor; if they are
// only the newest of more, see Replace. The life of an outbox begins anew.
//
// Cost: one round trip, O(n log size), and a trim when the feed is full.
func (s *Store) Add(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("add to %s: %w", k, err)
	}
	_, err := s.run(ctx, s.cfg.addition(k, ids...)...)
	return wrap(err, "add to %s", k)
}

// addition are the calls of Add.
func (c Config) addition(k Key, ids ...int64) []call {
	limit := c.cap(k)
	ids, floor := keepNewest(ids, limit, 0)
	args := []any{formatID(floor), limit, slack(limit), "0", "0"}
	if k.kind == outbox {
		args[3], args[4] = c.life(k), c.setLife(k)
	}
	return withLatestRaised(k, ids, call{addScript, k.keys(), appendIDs(args, ids)})
}

// keepNewest returns the newest ids, at most limit, and the floor that goes with them.
func keepNewest(ids []int64, limit int, floor int64) ([]int64, int64) {
	if len(ids) <= limit {
		return ids, floor
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = ids[len(ids)-limit:]
	return ids, max(floor, ids[0])
}

// Remove takes ids out of a feed. If a build is at work its Finish returns false, as
// the builder may have read the ids before they were removed. A Missing feed stays
// as it is. A slower Deliver may put an id back: the caller's check of visibility
// must hide it.
//
// Cost: one round trip, O(n log size).
func (s *Store) Remove(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("remove from %s: %w", k, err)
	}
	_, err := s.run(ctx, removal(k, wasRemoved, ids...))
	return wrap(err, "remove from %s", k)
}

// RemoveDeleted is Remove from an author's own feed of posts that the author deleted: the
// journal says that.
//
// Cost: as Remove.
func (s *Store) RemoveDeleted(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("remove from %s: %w", k, err)
	}
	_, err := s.run(ctx, removal(k, wasDeleted, ids...))
	return wrap(err, "remove from %s", k)
}

// removal is the call of Remove, or of RemoveDeleted.
func removal(k Key, entry string, ids ...int64) call {
	return call{removeScript, k.keys(), appendIDs([]any{k.journal(), entry}, ids)}
}

// Drop makes the feed Missing. A build at work is lost. To build a Ready feed anew,
// call Drop and then Begin.
//
// Cost: one round trip, O(size).
func (s *Store) Drop(ctx context.Context, k Key) error {
	return wrap(s.rdb.Del(ctx, k.keys()...).Err(), "drop %s", k)
}

// wrap adds what failed to err. It returns nil for nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

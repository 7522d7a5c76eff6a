package timeline

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"tideline/internal/errs"
)

// Feeds reads, builds and changes single feeds. It is safe for concurrent use.
type Feeds struct {
	scripts
	cfg    Config
	active *ActiveUsers
}

// InboxCap returns how many ids an inbox keeps.
func (f *Feeds) InboxCap() int { return f.cfg.InboxCap }

// OutboxCap returns how many ids an outbox keeps.
func (f *Feeds) OutboxCap() int { return f.cfg.OutboxCap }

// State says whether a feed can be read.
type State uint8

const (
	// Missing: nothing is known. Read SQL.
	Missing State = iota
	// Building: a builder has begun to fill the feed. Read SQL.
	Building
	// Ready: the feed is complete from the newest id down to the floor.
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

// Coverage describes the contents of a feed. All other fields are zero for a Missing feed.
type Coverage struct {
	// Epoch differs from one build of the feed to the next.
	Epoch int64
	// Floor is the id down to which the feed is complete, inclusive; 0 means to the beginning.
	// Within an epoch it only rises.
	Floor int64
	State State
	// Generation counts removals and calls of Reread. If it has risen, readers that cache what SQL
	// says about the posts read it again.
	Generation int64
}

// Range selects ids below Before and above After, read from one of its ends.
type Range struct {
	// Before and After are exclusive bounds; 0 leaves that end open.
	Before, After int64
	// Limit is the largest number of ids. 0 reads only the coverage.
	Limit int
	// Ascending reads from the oldest id of the range upwards, instead of from the newest
	// downwards.
	Ascending bool
}

// Upper returns the upper bound, or the largest int64 if the range is open.
func (r Range) Upper() int64 {
	if r.Before == 0 {
		return math.MaxInt64
	}
	return r.Before
}

// Behind returns the rest of the range after the id, in the order of the range.
func (r Range) Behind(id int64) Range {
	if r.Ascending {
		r.After = id
	} else {
		r.Before = id
	}
	return r
}

// First returns the range with limit n.
func (r Range) First(n int) Range {
	r.Limit = n
	return r
}

// Page returns ids of the feed in the order of the range, and its coverage, both from the same
// instant. Ids come only from a Ready feed and never from below its floor. If there are fewer ids
// than the limit, the feed has no more in the range; if the floor is above r.After, SQL may have
// more.
//
// Call Visit before the Page of an inbox: Visit finds out whether the inbox has received every
// push. If the feed is not Ready, call Begin.
//
// Cost: one round trip, O(log size + Limit).
func (f *Feeds) Page(ctx context.Context, k Key, r Range) ([]int64, Coverage, error) {
	parts, err := f.Pages(ctx, []Key{k}, r)
	if err != nil {
		return nil, Coverage{}, err
	}
	return parts[0].IDs, parts[0].Coverage, nil
}

// Settle asks a read of a page to settle the feed in the same step. Settling raises the floor to
// At, and further until the feed keeps at most Keep ids above Above. From the floor upwards, a
// reader then knows the feed by its ids. An id that is pushed below the floor arrives out of order,
// and is counted.
type Settle struct {
	Above, At int64
	Keep      int
}

// Settled is the state of a settled feed: its floor, and how many ids were ever pushed below its
// floor. Under stays the same while no id arrives below the floor.
type Settled struct{ Floor, Under int64 }

// args returns the arguments of the page script.
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

// Part is the content of one feed in a range.
type Part struct {
	IDs []int64
	Coverage
	// Settled is the result of a Settle, which runs after IDs and Coverage are read; otherwise
	// zero.
	Settled Settled
}

// Pages is Page for several feeds in one round trip. It returns one part for each feed, in order.
//
// Cost: one round trip, O(log size + Limit) a feed.
func (f *Feeds) Pages(ctx context.Context, feeds []Key, r Range) ([]Part, error) {
	if len(feeds) == 0 {
		return nil, nil
	}
	args, err := r.args()
	if err != nil {
		return nil, fmt.Errorf("page of %s: %w", feeds[0], err)
	}
	done, err := f.run(ctx, onFeeds(pageScript, feeds, args...)...)
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

// PagesAbove is Page for several feeds in one round trip. For each feed it reads at most limit ids,
// from the newest down to the feed's own After.
//
// Cost: one round trip, O(log size + limit) a feed.
func (f *Feeds) PagesAbove(ctx context.Context, feeds []Above, limit int) ([]Part, error) {
	calls := make([]call, len(feeds))
	for i, above := range feeds {
		if above.After < 0 || limit < 0 {
			return nil, fmt.Errorf("page of %s: negative bound", above.Key)
		}
		calls[i] = call{pageScript, above.Key.keys(), []any{"-inf", formatID(above.After), limit, "0"}}
	}
	done, err := f.run(ctx, calls...)
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

// Digest records that each outbox was read up to high, its bound, and returns a digest of how many ids
// arrived at or below the bound that the outbox had then. If two digests are equal, none arrived at or below high
// between them. With all, every outbox is included; otherwise only those that have ids above low
// and not above high. Digest fails if any of the outboxes is not Ready.
//
// Other readers may raise the bound further, so an id that arrives out of order above high may also
// change a digest.
//
// Cost: one round trip, O(log size) a feed.
func (f *Feeds) Digest(ctx context.Context, outboxes []Key, low, high int64, all bool) (digest uint64, err error) {
	done, err := f.run(ctx, onFeeds(digestScript, outboxes, formatID(high), formatID(low))...)
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

// part decodes the reply of the page script.
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

// coverage decodes the first four elements of a reply with six, and returns the others.
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

// Add puts ids into a feed that is Ready or Building, and does nothing if it is Missing. The ids
// must be all that the feed gains above its floor. If they are only the newest of more, use
// Replace. Add renews the lifetime of an outbox.
//
// Cost: one round trip, O(n log size), and a trim if the feed is full.
func (f *Feeds) Add(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("add to %s: %w", k, err)
	}
	_, err := f.run(ctx, f.cfg.addition(k, ids...)...)
	return errs.Wrap(err, "add to %s", k)
}

// addition returns the script calls of Add.
func (c Config) addition(k Key, ids ...int64) []call {
	limit := c.cap(k)
	ids, floor := keepNewest(ids, limit, 0)
	args := []any{formatID(floor), limit, slack(limit), "0", "0"}
	if k.kind == outbox {
		args[3], args[4] = c.life(k), c.setLife(k)
	}
	return withLatestRaised(k, ids, call{addScript, k.keys(), appendIDs(args, ids)})
}

// keepNewest returns the newest ids, at most limit, and the matching floor.
func keepNewest(ids []int64, limit int, floor int64) ([]int64, int64) {
	if len(ids) <= limit {
		return ids, floor
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = ids[len(ids)-limit:]
	return ids, max(floor, ids[0])
}

// Remove takes ids out of a feed. The Finish of a current build then returns false, because the
// builder may have read the ids before they were removed. A Missing feed does not change. A slower
// Deliver may put an id back, and the caller's visibility check must hide it.
//
// Cost: one round trip, O(n log size).
func (f *Feeds) Remove(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("remove from %s: %w", k, err)
	}
	_, err := f.run(ctx, removal(k, wasRemoved, ids...))
	return errs.Wrap(err, "remove from %s", k)
}

// RemoveDeleted is Remove for posts that the author deleted, from the author's own feed. The
// journal records that they were deleted.
//
// Cost: as Remove.
func (f *Feeds) RemoveDeleted(ctx context.Context, k Key, ids ...int64) error {
	if err := checkIDs(ids...); err != nil {
		return fmt.Errorf("remove from %s: %w", k, err)
	}
	_, err := f.run(ctx, removal(k, wasDeleted, ids...))
	return errs.Wrap(err, "remove from %s", k)
}

// removal returns the script call of Remove or RemoveDeleted.
func removal(k Key, entry string, ids ...int64) call {
	return call{removeScript, k.keys(), appendIDs([]any{k.journalCap(), entry}, ids)}
}

// Replace takes the ids gone out of the user's inbox, as Remove does, and adds ids, as Add does, in
// one step. ids are complete only down to floor, such as the newest posts of an author with many
// more, so the floor of the inbox rises to it. If invalidate is set and the inbox changes, Replace
// also invalidates earlier positions in the same step. So a process that dies afterwards leaves no
// unannounced change.
//
// Cost: one round trip, O(n log size).
func (f *Feeds) Replace(ctx context.Context, user int64, gone, ids []int64, floor int64, invalidate bool) error {
	if err := checkIDs(slices.Concat(gone, ids)...); err != nil {
		return fmt.Errorf("replace in the inbox of %d: %w", user, err)
	}
	limit := f.cfg.InboxCap
	ids, floor = keepNewest(ids, limit, floor)
	args := []any{formatID(floor), limit, slack(limit), journalCap, flag(invalidate), len(gone)}
	_, err := f.runOne(ctx, replaceScript, Inbox(user), appendIDs(appendIDs(args, gone), ids)...)
	return errs.Wrap(err, "replace in the inbox of %d", user)
}

// Drop makes the feed Missing. A current build is lost. To rebuild a Ready feed, call Drop and then
// Begin.
//
// Cost: one round trip, O(size).
func (f *Feeds) Drop(ctx context.Context, k Key) error {
	return errs.Wrap(f.rdb.Del(ctx, k.keys()...).Err(), "drop %s", k)
}

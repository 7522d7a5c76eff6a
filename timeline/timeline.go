// Package timeline keeps feeds in Redis: the inbox of each active user, the outbox
// of each author, as post ids sorted by time. It hides the keys, the encodings and
// the Lua. It knows ids, which are also the scores. It does not know posts,
// relations or who may see what, and it never reads SQL.
//
// # What holds
//
//   - A feed is Missing, Building or Ready. A Ready feed holds every id that
//     belongs to it from the newest down to its floor. Only a Ready feed is
//     read, only down to its floor. Ids below the floor may stay in the set; no
//     read returns them.
//   - SQL is the truth. Redis may be wiped, in part or whole, between any two
//     calls: then the feeds concerned are Missing, and are built again. A feed is
//     two keys. If either is lost the feed is Missing, so that eviction cannot
//     open a hole.
//   - What Redis keeps is trusted in one incarnation of it, the one in which it was
//     begun. A Redis that starts again, also from a snapshot, a replica that takes
//     over, and a master that gets a slot are other incarnations. Every script looks,
//     so no moment is left between a failover and its discovery.
//   - An id that is removed while a feed is being built cannot come back with what
//     the builder read from SQL before: Finish refuses it.
//   - Every write may be repeated.
//
// # Activity
//
// Deliver pushes to active users only. A user is active from the first Visit
// until ActiveFor after the last. Three lives keep a Ready inbox complete. Each is
// an hour longer than the one before, which also covers the differences between
// the clocks of processes:
//
//   - The coverage lives ActiveFor after the last Visit. Then the inbox is Missing.
//   - The user is pushed to for an hour longer, so that an inbox which a reader
//     trusts has not missed a push.
//   - The set of ids lives another hour, so that a late push finds a set that
//     expires.
//
// A Visit may find the user not active, because time has passed or Redis forgot.
// Posts may have been skipped then, so Visit drops the inbox. Therefore every read
// of an inbox is: Visit, Page, and if the inbox is not Ready: Begin, read SQL,
// Finish.
//
// On a cluster, the activity and the inbox of a user lie on different masters, and one
// of them may be rolled back alone. So an inbox also says in which incarnation of the
// activity it was begun, and a Visit in another one drops it.
//
// A push between a wipe and the next Begin leaves a set without coverage. That is
// harmless: reads call the inbox Missing, and Begin deletes the set. Sweep gives it an
// end, and so does a push that comes by.
//
// # Many outboxes
//
// A page of thousands of authors comes from the outboxes of a few. LatestPostIDs
// gives for each author an id that the outbox has none above, so that a reader asks
// only the outboxes that reach the page. Every write that puts ids into an outbox
// raises that id first.
//
// # Memory
//
// Scores are negated ids: the newest sorts first, where inserts into Redis's
// compact encoding are fastest. Set zset-max-listpack-entries to at least the
// larger cap + a tenth + 32, and an entry takes about 21 bytes instead of 127.
package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The bounds of Config, and its defaults.
const (
	MinInboxCap     = 300
	DefaultInboxCap = 500
	MaxInboxCap     = 1000

	MinOutboxCap     = 100
	DefaultOutboxCap = 1000
	MaxOutboxCap     = 10_000

	MinActiveFor     = time.Minute
	DefaultActiveFor = 72 * time.Hour
	MaxActiveFor     = 8760 * time.Hour
)

// Config sets the bounds of a Store. The zero value of a field means its default.
type Config struct {
	// InboxCap is how many of the newest ids an inbox keeps, MinInboxCap to
	// MaxInboxCap. Defaults to DefaultInboxCap.
	InboxCap int
	// OutboxCap is how many of the newest ids an outbox keeps, MinOutboxCap to
	// MaxOutboxCap. Defaults to DefaultOutboxCap.
	OutboxCap int
	// ActiveFor is how long an inbox is kept after a Visit, MinActiveFor to
	// MaxActiveFor. Defaults to DefaultActiveFor.
	ActiveFor time.Duration
	// Now tells the time. Defaults to time.Now. The life of keys follows the clock
	// of Redis; all other times follow Now.
	Now func() time.Time
	// Reborn is called when a Redis that this process has met turns out to be another
	// incarnation: it was started again, or a replica has taken over. It must return at
	// once. Optional.
	Reborn func()
}

const (
	// outboxLife is how long an outbox outlives its last build or Add.
	outboxLife = 7 * 24 * time.Hour
	// clockMargin separates the lives of coverage, activity and set. The clocks of
	// two processes must not differ by more.
	clockMargin = time.Hour
	// staleAfter is how long a builder may be silent before it is replaced.
	staleAfter = 10 * time.Second
	// fenceLife is how long a fence is remembered.
	fenceLife = time.Hour
	// remainsLife is how long a set is kept that has no coverage and no end.
	remainsLife = clockMargin
	// toldLife is how long Redis remembers which changes a user was told of.
	toldLife = time.Hour
	// batch is how many commands go into one pipeline: enough to hide the round
	// trip, few enough not to delay others on the same server.
	batch = 1000
	// pushes is batch for pushes, the bulk of what Redis does. Redis works on one
	// pipeline of them for less than a millisecond.
	pushes = 250
	// pipelines is how many pipelines one call has under way. This process writes one
	// while Redis works on the other, and others wait for no more than these.
	pipelines = 2
)

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.InboxCap = cmp.Or(c.InboxCap, DefaultInboxCap)
	c.OutboxCap = cmp.Or(c.OutboxCap, DefaultOutboxCap)
	c.ActiveFor = cmp.Or(c.ActiveFor, DefaultActiveFor)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Reborn == nil {
		c.Reborn = func() {}
	}
	return c
}

// Validate names everything that is out of bounds. A zero field is, but for Now.
func (c Config) Validate() error {
	var errs []error
	if c.InboxCap < MinInboxCap || c.InboxCap > MaxInboxCap {
		errs = append(errs, fmt.Errorf("InboxCap is %d: it must be %d to %d", c.InboxCap, MinInboxCap, MaxInboxCap))
	}
	if c.OutboxCap < MinOutboxCap || c.OutboxCap > MaxOutboxCap {
		errs = append(errs, fmt.Errorf("OutboxCap is %d: it must be %d to %d", c.OutboxCap, MinOutboxCap, MaxOutboxCap))
	}
	if c.ActiveFor < MinActiveFor || c.ActiveFor > MaxActiveFor {
		errs = append(errs, fmt.Errorf("ActiveFor is %v: it must be %v to %v", c.ActiveFor, MinActiveFor, MaxActiveFor))
	}
	return errors.Join(errs...)
}

// Store reads and writes feeds. It is safe for concurrent use, also by many
// processes. Its only state of its own is how far Sweep has come, in which incarnation
// it met Redis, and which masters of a cluster could not be reached lately.
type Store struct {
	*activeUsers
	*Fences
	*Latest
	*Journals
	scripts
	cfg     Config
	sweep   sweeper
	met     met
	masters *Masters
}

// New returns a Store on rdb, which the caller closes. It fails only when cfg is out
// of bounds, and does not talk to Redis.
func New(rdb redis.UniversalClient, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	masters, run := newMasters(rdb), scripts{rdb}
	return &Store{
		activeUsers: &activeUsers{run, masters, cfg.Now}, Fences: &Fences{run, cfg.Now}, Latest: &Latest{run}, Journals: &Journals{run},
		scripts: run, cfg: cfg, masters: masters,
	}, nil
}

// SomeUnreached reports whether err is, or wraps, an Unreached.
func SomeUnreached(err error) bool {
	var some *Unreached
	return errors.As(err, &some)
}

// Masters says which masters of a cluster are reached, and bounds what waits for them.
func (s *Store) Masters() *Masters { return s.masters }

// InboxCap is how many ids an inbox keeps.
func (s *Store) InboxCap() int { return s.cfg.InboxCap }

// OutboxCap is how many ids an outbox keeps.
func (s *Store) OutboxCap() int { return s.cfg.OutboxCap }

// cap is how many ids a trim leaves in the feed.
func (c Config) cap(k Key) int {
	if k.kind == outbox {
		return c.OutboxCap
	}
	return c.InboxCap
}

// slack is how far past the cap a feed may grow before it is trimmed: a trim at
// every insert would cost a quarter of the throughput.
func slack(limit int) int { return limit / 10 }

// life is how long the coverage of the feed lives, in milliseconds.
func (c Config) life(k Key) int64 {
	if k.kind == outbox {
		return outboxLife.Milliseconds()
	}
	return c.ActiveFor.Milliseconds()
}

// setLife is how long the set of a feed lives, in milliseconds.
func (c Config) setLife(k Key) int64 { return c.life(k) + 2*clockMargin.Milliseconds() }

// deadline is until when a user who visits now is pushed to, in Unix milliseconds.
func (c Config) deadline(now int64) int64 {
	return now + (c.ActiveFor + clockMargin).Milliseconds()
}

func (c Config) nowMillis() int64 { return c.Now().UnixMilli() }

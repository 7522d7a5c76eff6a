// Package timeline keeps feeds in Redis: the inbox of each active user and the
// outbox of each author, as post ids sorted by time. It hides the keys, the
// encodings and the Lua. It knows ids, which are also the scores; it does not
// know posts, relations or who may see what, and it never reads SQL.
//
// # What holds
//
//   - A feed is Missing, Building or Ready. A Ready feed holds every id that
//     belongs to it from the newest down to its floor. Only a Ready feed is
//     read, only down to its floor. Ids below the floor may linger in the
//     set; no read returns them.
//   - SQL is the truth. Redis may be wiped, in part or whole, between any two
//     calls: the feeds concerned are Missing then, and are built again. A
//     feed is two keys; losing either of them makes it Missing, so that
//     eviction cannot open a hole. What does open one is a failover that
//     forgets inserts Redis had acknowledged: compare with SQL now and then.
//   - An id removed while a feed is being built cannot come back with the
//     builder's older reading of SQL: Finish refuses it.
//   - Every write may be repeated.
//
// # Activity
//
// Deliver pushes to active users only. A user is active from the first Touch
// until ActiveFor after the last. Three lives keep a Ready inbox complete,
// each an hour longer than the one before, which also absorbs the differences
// between the clocks of processes:
//
//   - coverage lives ActiveFor after the last Touch: then the inbox is Missing;
//   - the user is pushed to for an hour longer, so that nothing is skipped that
//     a reader trusts the inbox to hold;
//   - the set of ids lives another hour, so that what is still pushed finds a
//     set that expires.
//
// A Touch that finds the user not active, because time has passed or Redis
// forgot it, drops the inbox, since posts may have been skipped. Therefore
// every read of an inbox is: Touch, Page, and if it is not Ready: Begin, read
// SQL, Finish.
//
// A push between a wipe and the next Begin leaves a set without coverage. It
// is harmless: reads call it Missing, Begin deletes it, and so does Sweep.
//
// # Many outboxes
//
// A page of thousands of authors is in the outboxes of a few. Newest tells of each
// author an id that the outbox has none above, so that a reader asks those only who
// reach the page. Whatever is put into an outbox through a Store raises it first.
//
// # Memory
//
// Scores are negated ids: the newest sorts first, where inserts into Redis's
// compact encoding are fastest. Set zset-max-listpack-entries to at least the
// larger cap + a tenth + 32, and an entry takes about 21 bytes in place
// of 127.
package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config sets the bounds of a Store. Its zero value is valid.
type Config struct {
	// InboxCap is how many of the newest ids an inbox keeps, 300 to 1000.
	// Defaults to 500.
	InboxCap int
	// OutboxCap is how many of the newest ids an outbox keeps, 100 to 10000.
	// Defaults to 1000.
	OutboxCap int
	// ActiveFor is how long after a Touch an inbox is kept, 1 minute to 1 year.
	// Defaults to 72 hours.
	ActiveFor time.Duration
	// Now tells the time. Defaults to time.Now. The life of keys follows the
	// clock of Redis, all other times follow Now.
	Now func() time.Time
}

const (
	inboxCapDefault  = 500
	outboxCapDefault = 1000
	activeForDefault = 72 * time.Hour

	// outboxLife is how long an outbox outlives its last build or Add.
	outboxLife = 7 * 24 * time.Hour
	// margin separates the lives of coverage, activity and set.
	margin = time.Hour
	// staleAfter is how long a builder may be silent before it is replaced.
	staleAfter = 10 * time.Second
	// fenceLife is how long a fence is remembered.
	fenceLife = time.Hour
	// batch is how many commands go into one pipeline: enough to hide the
	// round trip, few enough not to delay others on the same server.
	batch = 1000
	// pushes is batch for pushes, the bulk of what Redis does: Redis works for
	// less than a millisecond on one.
	pushes = 250
	// pipelines is how many of them one call has under way: one is written while
	// Redis works on the other, and nobody else waits behind more.
	pipelines = 2
)

func (c Config) withDefaults() Config {
	c.InboxCap = cmp.Or(c.InboxCap, inboxCapDefault)
	c.OutboxCap = cmp.Or(c.OutboxCap, outboxCapDefault)
	c.ActiveFor = cmp.Or(c.ActiveFor, activeForDefault)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate says everything that is out of bounds. Zero fields stand for their
// defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.InboxCap < 300 || c.InboxCap > 1000 {
		errs = append(errs, fmt.Errorf("inbox cap must be 300 to 1000, got %d", c.InboxCap))
	}
	if c.OutboxCap < 100 || c.OutboxCap > 10000 {
		errs = append(errs, fmt.Errorf("outbox cap must be 100 to 10000, got %d", c.OutboxCap))
	}
	if c.ActiveFor < time.Minute || c.ActiveFor > 365*24*time.Hour {
		errs = append(errs, fmt.Errorf("active period must be 1m to 8760h, got %s", c.ActiveFor))
	}
	return errors.Join(errs...)
}

// Store reads and writes feeds. It is safe for concurrent use, by many
// processes too; the only state it holds itself is the position of Sweep.
type Store struct {
	rdb   redis.UniversalClient
	cfg   Config
	sweep sweeper
}

// New returns a Store on rdb, which remains the caller's to close. It fails
// only when cfg is not valid, and does not talk to Redis.
func New(rdb redis.UniversalClient, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Store{rdb: rdb, cfg: cfg.withDefaults()}, nil
}

// InboxCap is how many ids an inbox keeps.
func (s *Store) InboxCap() int { return s.cfg.InboxCap }

// OutboxCap is how many ids an outbox keeps.
func (s *Store) OutboxCap() int { return s.cfg.OutboxCap }

// cap is how many ids the feed keeps when it is trimmed.
func (s *Store) cap(k Key) int {
	if k.kind == outbox {
		return s.cfg.OutboxCap
	}
	return s.cfg.InboxCap
}

// slack is how far past the cap a feed may grow before it is trimmed: trimming
// on every insert costs a quarter of the throughput.
func slack(limit int) int { return limit / 10 }

// life is how long the coverage of the feed lives, in milliseconds.
func (s *Store) life(k Key) int64 {
	if k.kind == outbox {
		return outboxLife.Milliseconds()
	}
	return s.cfg.ActiveFor.Milliseconds()
}

// setLife is how long the set of a feed lives, in milliseconds.
func (s *Store) setLife(k Key) int64 { return s.life(k) + 2*margin.Milliseconds() }

// deadline is until when a user touched now is pushed to, in Unix milliseconds.
func (s *Store) deadline(now int64) int64 {
	return now + (s.cfg.ActiveFor + margin).Milliseconds()
}

func (s *Store) nowMillis() int64 { return s.cfg.Now().UnixMilli() }

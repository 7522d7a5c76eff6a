// Package timeline keeps feeds in Redis: the inbox of each active user and the outbox of each
// author, as post ids sorted by time. It hides the keys, the encodings and the Lua. An id is also
// its score. The package does not know posts, relations or who may see what, and never reads SQL.
//
// # Invariants
//
//   - A feed is Missing, Building or Ready. A Ready feed holds every id that
//     belongs to it from the newest down to its floor. Only a Ready feed is
//     read, and only down to its floor. Ids below the floor may stay in the set,
//     but no read returns them.
//   - SQL is the truth. Redis may be wiped, partly or entirely, between any two
//     calls. The affected feeds are then Missing and are built again. A feed has
//     two keys. If either is lost, the feed is Missing, so eviction cannot open a
//     hole.
//   - A feed is valid only in the incarnation of Redis in which it was begun. A
//     restart (also from a snapshot), a promoted replica, and a master that
//     receives a slot are new incarnations. Every script checks the incarnation,
//     so no read trusts an old feed between a failover and its discovery.
//   - If an id is removed while a feed is being built, Finish refuses what the
//     builder read from SQL before, so the id cannot come back.
//   - Every write may be repeated.
//
// # Activity
//
// Deliver pushes to active users only. A user is active from the first Visit until ActiveFor plus
// one hour after the last. Three lifetimes keep a Ready inbox complete. Each is an hour longer than
// the previous one, which also covers clock differences between processes:
//
//   - The coverage lives for ActiveFor after the last Visit. Then the inbox is
//     Missing.
//   - The user is pushed to for an hour longer, so an inbox that a reader trusts
//     has missed no push.
//   - The set of ids lives another hour, so a late push finds a set that expires.
//
// A Visit may find that the user is not active, because time has passed or Redis lost the activity.
// Posts may have been skipped then, so Visit drops the inbox. Every read of an inbox is therefore:
// Visit, Page, and if the inbox is not Ready: Begin, read SQL, Finish.
//
// On a cluster, the activity and the inbox of a user are on different masters, and one of them may
// be rolled back alone. So an inbox also records the incarnation of the activity in which it was
// begun, and a Visit in another incarnation drops it.
//
// A push between a wipe and the next Begin leaves a set without coverage. This is harmless: reads
// call the inbox Missing, and Begin deletes the set. Sweep or a later push gives the set an expiry.
//
// # Many outboxes
//
// A page that merges thousands of authors has posts of only a few. [Latest.IDs] returns for each
// author an upper bound of the ids in the outbox, so a reader asks only the outboxes that reach the
// page. Every write that puts ids into an outbox raises this bound first.
//
// # Topics
//
// Topics records what changes in a conversation, or in the relations of a user, while somebody
// watches. A record is one key that expires. It has its own epoch and no part in feeds.
//
// # Memory
//
// Scores are negated ids. The newest id sorts first, where inserts into Redis's compact encoding
// are fastest. If zset-max-listpack-entries is at least the larger cap + a tenth + 32, an entry
// takes about 21 bytes, otherwise 127.
package timeline

import (
	"cmp"
	"errors"
	"time"

	"tideline/internal/errs"
	"tideline/internal/redisclient"
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

// Config sets the bounds of a Store. A zero field means its default.
type Config struct {
	// InboxCap is how many of the newest ids an inbox keeps, from MinInboxCap to MaxInboxCap.
	// Defaults to DefaultInboxCap.
	InboxCap int
	// OutboxCap is how many of the newest ids an outbox keeps, from MinOutboxCap to MaxOutboxCap.
	// Defaults to DefaultOutboxCap.
	OutboxCap int
	// ActiveFor is how long an inbox is kept after a Visit, from MinActiveFor to MaxActiveFor.
	// Defaults to DefaultActiveFor.
	ActiveFor time.Duration
	// Now is the clock. Defaults to time.Now. Keys expire by the clock of Redis; all other times
	// use Now.
	Now func() time.Time
	// Reborn is called when a Redis that this process has used before has become another
	// incarnation, because it was restarted or a replica was promoted. It must return at once.
	// Optional.
	Reborn func()
}

const (
	// outboxLife is how long an outbox lives after its last build or Add.
	outboxLife = 7 * 24 * time.Hour
	// clockMargin separates the lifetimes of coverage, activity and set. It is also the largest
	// allowed difference between the clocks of two processes.
	clockMargin = time.Hour
	// staleAfter is how long a builder may be silent before another one takes over.
	staleAfter = 10 * time.Second
	// fenceLife is how long a fence lasts.
	fenceLife = time.Hour
	// remainsLife is the expiry given to a set that has neither coverage nor expiry.
	remainsLife = clockMargin
	// toldLife is how long Redis remembers which changes a user was told about.
	toldLife = time.Hour
	// batch is how many commands one pipeline has: enough to hide the round trip, few enough not to
	// delay other clients of the server.
	batch = 1000
	// pushes is the batch size of pushes, which are most of the load on Redis. Redis works on one
	// such pipeline for less than a millisecond.
	pushes = 250
	// pipelines is how many pipelines of one call are in flight. While Redis works on one, this
	// process writes the other. Other clients wait for at most these.
	pipelines = 2
)

// withDefaults replaces zero fields with their defaults.
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

// Validate returns an error that names every field that is out of bounds. Zero is out of bounds for
// every field except Now and Reborn.
func (c Config) Validate() error {
	return errors.Join(
		errs.Bound("InboxCap", c.InboxCap, MinInboxCap, MaxInboxCap),
		errs.Bound("OutboxCap", c.OutboxCap, MinOutboxCap, MaxOutboxCap),
		errs.Bound("ActiveFor", c.ActiveFor, MinActiveFor, MaxActiveFor),
	)
}

// Store is the feeds of one Redis, in parts. It is safe for concurrent use, also by many processes.
// Its only own state is the position of the Sweeper, the last known incarnations of Redis, and the
// masters of a cluster that could not be reached lately.
type Store struct {
	Feeds    *Feeds       // reads, builds and changes single feeds
	Visits   *Visits      // keeps users active while they read
	Inboxes  *Inboxes     // changes the inboxes of many users at once
	Own      *OwnFeeds    // changes what belongs to one author
	Active   *ActiveUsers // tells to which users posts are pushed
	Journals *Journals    // tells what changed in an inbox
	Fences   *Fences      // tells which relations changed during a fan-out
	Latest   *Latest      // tells which of many outboxes reach a page
	Topics   *Topics      // tells what changed while somebody watched
	Sweeper  *Sweeper
	Masters  *Masters // of a cluster; bounds how long calls wait for them
}

// New returns a Store on rdb, which the caller closes. It fails only if cfg is out of bounds. It
// does not access Redis.
func New(rdb redisclient.Client, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	run, masters := scripts{rdb}, newMasters(rdb)
	active := &ActiveUsers{scripts: run, cfg: cfg, masters: masters}
	fences := &Fences{run, cfg.Now}
	inboxes := &Inboxes{run, cfg, active, masters}
	return &Store{
		Feeds:    &Feeds{run, cfg, active},
		Visits:   &Visits{run, cfg, active},
		Inboxes:  inboxes,
		Own:      &OwnFeeds{run, cfg, fences, inboxes},
		Active:   active,
		Journals: &Journals{run},
		Fences:   fences,
		Latest:   &Latest{run},
		Topics:   &Topics{run},
		Sweeper:  &Sweeper{scripts: run, cfg: cfg, inboxes: inboxes},
		Masters:  masters,
	}, nil
}

// SomeUnreached reports whether err is, or wraps, an Unreached.
func SomeUnreached(err error) bool {
	var some *Unreached
	return errors.As(err, &some)
}

// cap returns how many ids a trim leaves in the feed.
func (c Config) cap(k Key) int {
	if k.kind == outbox {
		return c.OutboxCap
	}
	return c.InboxCap
}

// slack returns how far a feed may grow past its cap before it is trimmed. A trim at every insert
// would cost a quarter of the throughput.
func slack(limit int) int { return limit / 10 }

// life returns how long the coverage of the feed lives, in milliseconds.
func (c Config) life(k Key) int64 {
	if k.kind == outbox {
		return outboxLife.Milliseconds()
	}
	return c.ActiveFor.Milliseconds()
}

// setLife returns how long the set of the feed lives, in milliseconds.
func (c Config) setLife(k Key) int64 { return c.life(k) + 2*clockMargin.Milliseconds() }

// deadline returns until when a user who visits now is pushed to, in Unix milliseconds.
func (c Config) deadline(now int64) int64 {
	return now + (c.ActiveFor + clockMargin).Milliseconds()
}

func (c Config) nowMillis() int64 { return c.Now().UnixMilli() }

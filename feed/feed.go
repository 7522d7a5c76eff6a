// Package feed is the product's rules: who may see what, what a relation
// between two users does, how a post is made and how a page of a timeline is
// composed.
//
// Its invariants:
//
//   - SQL is the truth. Feeds in Redis say where to look; every post that leaves
//     this package has been read from SQL and has passed mayShow after the
//     request began.
//   - A write and the job that follows from it commit together. Nothing is put
//     into Redis before the commit.
//   - What a caller wrote, the caller's next read shows: the caller's own feeds
//     are brought up to date before a mutation returns, everybody else's by the
//     workers.
//   - A timeline has no hole: below what an inbox covers, or without an inbox,
//     a page goes on in SQL on the same cursor.
//
// What an operation costs is said with it. Nothing grows with the number of all
// users: a write costs a handful of statements and a job, a read as much as its
// page has, but for reads without an inbox, which look up each followee once.
//
// It does not know GraphQL, HTTP, or how feeds lie in Redis.
package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// Config is what a Feed works with. All fields without a default are required.
type Config struct {
	DB        *ent.Client
	Dialect   string // of DB: dialect.SQLite or dialect.Postgres
	Timelines *timeline.Store
	Queue     *queue.Queue
	// Hub gives live events. A process without sockets, such as a worker, has
	// none; Listen must not be called there.
	Hub       *live.Hub
	Publisher *live.Publisher
	// IDs makes the ids of users and posts. A process that makes none has none.
	IDs *IDs

	// SessionTTL is how long a log-in lasts. Defaults to 30 days.
	SessionTTL time.Duration
	// LargeAudience is the follower count from which an author's posts are
	// fanned out by the pool for large jobs, so that they delay nobody else's.
	// Defaults to 10,000.
	LargeAudience int
	// PullAbove is the follower count above which an author's posts are not
	// pushed to inboxes but merged by readers; NeverPull and AlwaysPull are the
	// ends of the range. Defaults to 50,000.
	PullAbove int
	// PushAndPullFor is how long both is done on the way to pull, at least ten times
	// MergedListFor, which is how long a process goes by the list of authors to
	// merge. Default to 30 s and 2 s.
	PushAndPullFor, MergedListFor time.Duration
	// MergeAll is how many authors a reader merges without asking first whose
	// posts reach the page. Defaults to 200.
	MergeAll int
	// InboxCap is how many entries of a timeline are kept ready, counted as
	// unread and ranked. Defaults to 500.
	InboxCap int
	// OutboxCap is how many of an author's posts are kept ready. Defaults to 1000.
	OutboxCap int
	// MaxText is how many characters a post may have, MaxPage how many entries a
	// page. Default to 5,000 and 100.
	MaxText, MaxPage int
	// RankDecay is how much newer a post must be to outweigh one with ten times
	// its likes in the ranked timeline, as Weight has it: 1 minute to 8760 hours.
	// Defaults to 12.5 hours.
	RankDecay time.Duration
	// Observe is told of every read of a feed whether Redis had it (a hit) or SQL
	// answered. Optional.
	Observe func(hit bool)
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Feed applies the rules. It is safe for concurrent use.
type Feed struct {
	cfg     Config
	db      *ent.Client
	dialect string
	tl      *timeline.Store
	queue   *queue.Queue
	ids     *IDs
	log     *slog.Logger
	now     func() time.Time

	hashing   chan struct{}   // one token per password hash at work
	dummyHash string          // hash that unknown handles are checked against
	builds    chan cachedFeed // feeds to be built
	merged    mergedList
	// visibilityVersion counts the changes here by which somebody may see less, once they
	// are committed.
	visibilityVersion atomic.Int64

	// See settledNow, in Unix milliseconds: when late fan-outs were looked for, and
	// up to when all posts were distributed then.
	lookedForLate, distributed atomic.Int64
}

// builders is how many inboxes a process builds at a time; waitingBuilds how
// many more may wait. One that finds no place is asked for again by the user's
// next read, which is complete without it.
const (
	builders      = 4
	waitingBuilds = 1024
)

// New returns a Feed. It fails when a required part of the configuration is
// missing or RankDecay is out of bounds.
func New(ctx context.Context, cfg Config) (*Feed, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Timelines == nil || cfg.Queue == nil || cfg.Publisher == nil {
		return nil, errors.New("feed: DB, Dialect, Timelines, Queue and Publisher are required")
	}
	if cfg.SessionTTL == 0 {
		cfg.SessionTTL = 30 * 24 * time.Hour
	}
	if cfg.LargeAudience == 0 {
		cfg.LargeAudience = 10_000
	}
	if cfg.PullAbove == 0 {
		cfg.PullAbove = 50_000
	}
	if cfg.PushAndPullFor == 0 {
		cfg.PushAndPullFor = 30 * time.Second
	}
	if cfg.MergedListFor == 0 {
		cfg.MergedListFor = 2 * time.Second
	}
	if cfg.MergeAll == 0 {
		cfg.MergeAll = defaultMergeAll
	}
	if cfg.InboxCap == 0 {
		cfg.InboxCap = 500
	}
	if cfg.OutboxCap == 0 {
		cfg.OutboxCap = 1000
	}
	if cfg.MaxText == 0 {
		cfg.MaxText = 5000
	}
	if cfg.MaxPage == 0 {
		cfg.MaxPage = 100
	}
	if cfg.RankDecay == 0 {
		cfg.RankDecay = rankDecay
	}
	if cfg.RankDecay < leastRankDecay || cfg.RankDecay > mostRankDecay {
		return nil, fmt.Errorf("feed: rank decay must be %v to %v, not %v", leastRankDecay, mostRankDecay, cfg.RankDecay)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(bool) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &Feed{
		cfg: cfg, db: cfg.DB, dialect: cfg.Dialect, tl: cfg.Timelines, queue: cfg.Queue, ids: cfg.IDs,
		log:     cfg.Logger,
		now:     func() time.Time { return cfg.Now().UTC() }, // SQLite compares times as text
		hashing: make(chan struct{}, runtime.GOMAXPROCS(0)),
		builds:  make(chan cachedFeed, waitingBuilds),
	}
	var err error
	if f.dummyHash, err = f.hash(ctx, "nobody has this password"); err != nil {
		return nil, err
	}
	return f, nil
}

// Run builds inboxes in the background until ctx ends. Without it timelines are
// complete all the same, read from SQL each time.
func (f *Feed) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range builders {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case k := <-f.builds:
					if err := f.build(ctx, k); err != nil && ctx.Err() == nil {
						f.log.WarnContext(ctx, "feed not built; reads go on in SQL", "error", err)
					}
				}
			}
		})
	}
	return g.Wait()
}

// inTx runs fn in a transaction: committed when fn returns nil, else rolled back.
func (f *Feed) inTx(ctx context.Context, fn func(tx *ent.Tx) error) error {
	tx, err := f.db.Tx(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := fn(tx); err != nil {
		if undone := tx.Rollback(); undone != nil {
			f.log.WarnContext(ctx, "rollback failed", "error", undone)
		}
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

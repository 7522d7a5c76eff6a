// Package workers runs the work that follows from a commit.
//
// # Jobs
//
// Two roles handle jobs:
//
//   - The distributor fans posts out to followers (fanout.go, fence.go, report.go, and
//     followerscan.go, which scans the followers). FANOUT.md describes the steps.
//   - The reconciler makes inboxes agree with changed relations (reconciler.go).
//
// When a job of either role is given up, the inboxes that it may have missed become Missing and are
// read from SQL (givenup.go).
//
// All jobs are level-triggered: a job names what changed, and its handler reads the current state
// from SQL. A job that runs twice, late, or concurrently with its opposite leaves the feeds as SQL
// has them. This package does not decide who may see what. Package feed does, again at every read.
//
// # Loops
//
// Every process with workers also runs these loops:
//
//   - The trimmer keeps feeds and expired rows within their bounds.
//   - The eraser starts the deletion of users whose grace period is over (eraser.go).
//   - The balancer moves authors who are pushed and pulled on to pull.
//   - The indexer adds the search words of users who were created without them (indexer.go).
//   - The folder adds the deltas of counters to their columns.
//   - The monitor raises alarms.
//   - The waker makes jobs due that wait for a master of Redis, when that master serves
//     again (returned.go).
//
// Every server runs a Canary, which measures how long a post takes through all of this (canary.go).
//
// # Cost
//
// A fan-out costs one ZADD for each active follower, and the cheaper of two ways to find them: an
// index range of the author's followers and muters, with a list of the active users or a look-up of
// each follower; or a list of the active users, with a look-up of each. If most followers are away,
// they cost nothing. If Redis is wiped meanwhile, each active user is looked up once more. A
// changed relation costs twice as much as home.Sync.Inbox.
package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/home"
	"tideline/feed/job"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/clock"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// DefaultPageSize is the default of Config.PageSize.
const DefaultPageSize = 3000

const (
	returnEvery = time.Second // the period of calls to Masters
	foldEvery   = time.Second // the period at which the deltas of counters are folded
)

// Config configures Workers. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Visibility *visibility.Reader
	Home       *home.Home
	Feed       *feed.Feed
	Sessions   *session.Store
	Accounts   *account.Accounts
	Timelines  *timeline.Store
	Queue      *queue.Queue
	Publisher  *live.Publisher

	// Masters checks all masters of Redis and returns the result for each by address; nil means
	// that the master serves. Jobs that wait because a master could not be reached become due when
	// it serves again. Without Masters they wait for their next attempt. Optional.
	Masters func(context.Context) (map[string]error, error)

	// PageSize is how many followers are read and pushed to at a time. A fan-out resumes where an
	// earlier attempt stopped, even if that attempt had another page size. Defaults to
	// DefaultPageSize.
	PageSize int
	// PartSize is about how many followers one job handles. If more remain after its first page, a
	// fan-out is divided into parts, which are jobs of their own. There are at most 32 parts, which
	// are larger if necessary. Defaults to DefaultPartSize.
	PartSize int
	// KeepEvery is how often a long fan-out stores its progress, at the end of a page. After an
	// interruption, the pages since then are repeated: less than KeepEvery of work, and one page.
	// Defaults to 100 ms.
	KeepEvery time.Duration
	// TrimEvery is the trimmer's period. Defaults to 1 minute.
	TrimEvery time.Duration
	// WatchEvery is the period of the monitor and the balancer. Defaults to 10 seconds.
	WatchEvery time.Duration
	// LagLimit is the age above which a waiting job, or a finished fan-out, is logged as a warning.
	// Defaults to the constant LagLimit.
	LagLimit time.Duration
	// Observe is called after every finished fan-out. Optional.
	Observe func(FanOutReport)
	// ObserveHealth is called with each result of the monitor. Optional.
	ObserveHealth func(Health)
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock for lags and ages. Defaults to time.Now.
	Now func() time.Time
}

// Workers has the handlers of jobs and the loops beside them.
type Workers struct {
	Config
	audit     *audit.Audit
	batch     fanOutBatch
	scans     *followerScans
	coalescer *coalescer
	wakeOwed  bool // a master has returned and Wake has not succeeded since; used by wakeAfterReturn only
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.PageSize = cmp.Or(c.PageSize, DefaultPageSize)
	c.PartSize = cmp.Or(c.PartSize, DefaultPartSize)
	c.KeepEvery = cmp.Or(c.KeepEvery, 100*time.Millisecond)
	c.TrimEvery = cmp.Or(c.TrimEvery, time.Minute)
	c.WatchEvery = cmp.Or(c.WatchEvery, 10*time.Second)
	c.LagLimit = cmp.Or(c.LagLimit, LagLimit)
	if c.Observe == nil {
		c.Observe = func(FanOutReport) {}
	}
	if c.ObserveHealth == nil {
		c.ObserveHealth = func(Health) {}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// validate returns an error that names everything that is missing or out of bounds.
func (c Config) validate() error {
	var errs []error
	if c.DB == nil || c.Visibility == nil || c.Home == nil || c.Feed == nil || c.Sessions == nil || c.Accounts == nil || c.Timelines == nil || c.Queue == nil || c.Publisher == nil {
		errs = append(errs, errors.New("workers: DB, Visibility, Home, Feed, Sessions, Accounts, Timelines, Queue and Publisher are required"))
	}
	if c.PageSize < 1 {
		errs = append(errs, fmt.Errorf("workers: PageSize is %d: it must be at least 1", c.PageSize))
	}
	if c.PartSize < 1 {
		errs = append(errs, fmt.Errorf("workers: PartSize is %d: it must be at least 1", c.PartSize))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"KeepEvery", c.KeepEvery}, {"TrimEvery", c.TrimEvery}, {"WatchEvery", c.WatchEvery}, {"LagLimit", c.LagLimit},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("workers: %s is %v: it must be above 0", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// New registers the handlers with the queue; Run runs them. It fails if a required field of the
// configuration is missing or another one is negative.
func New(cfg Config) (*Workers, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Workers{Config: cfg, audit: audit.New(cfg.Home), batch: newFanOutBatch(cfg.Visibility),
		scans: newFollowerScans(cfg.DB, cfg.Visibility, cfg.Timelines, cfg.PageSize), coalescer: newCoalescer(cfg.DB, cfg.Now)}
	queue.HandleResult(cfg.Queue, job.PostCreated, w.postCreated, w.storeFinished)
	queue.HandleResult(cfg.Queue, job.PostChanged, w.postChanged, w.storeFinished)
	cfg.Queue.Handle(job.RelationChanged, w.relationChanged)
	cfg.Queue.Handle(job.AuthorReturns, w.authorReturns)
	cfg.Queue.Handle(job.PostGivenUp, w.postGivenUp)
	cfg.Queue.Handle(job.RelationGivenUp, w.relationGivenUp)
	cfg.Queue.Handle(job.InboxesStale, w.inboxesStale)
	cfg.Queue.Handle(job.FeedsStale, w.feedsStale)
	cfg.Queue.Handle(job.PostsBackdated, w.postsBackdated)
	cfg.Queue.Handle(job.WordsChanged, w.wordsChanged)
	cfg.Queue.Handle(job.AuthorStale, w.authorStale)
	cfg.Queue.Handle(job.UserDeleted, w.userDeleted)
	cfg.Queue.Handle(job.PostErased, w.postErased)
	cfg.Queue.Handle(job.BaseChanged, w.baseChanged)
	cfg.Queue.WhenGivenUp(job.PostCreated, job.PostGivenUp)
	cfg.Queue.WhenGivenUp(job.PostChanged, job.PostGivenUp)
	cfg.Queue.WhenGivenUp(job.RelationChanged, job.RelationGivenUp)
	cfg.Queue.Handle(job.Canary, w.canaryArrived)
	// Processes of the previous version also send canaries that end at a worker.
	cfg.Queue.Handle("canary", func(context.Context, *queue.Job) error { return nil })
	return w, nil
}

// Run handles jobs until ctx ends. Then it finishes the jobs under way or hands them back, and returns the
// error of ctx.
//
// Cost: some look-ups a second in SQL and Redis in an idle process. The package comment describes
// the cost of jobs.
func (w *Workers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Queue.Run(ctx) })
	g.Go(func() error { return clock.Every(ctx, w.TrimEvery, w.trim) })
	g.Go(func() error { return clock.Every(ctx, w.TrimEvery, w.deleteDue) })
	g.Go(func() error {
		w.index(ctx)
		return clock.Every(ctx, w.TrimEvery, w.index)
	})
	g.Go(func() error { return clock.Every(ctx, w.WatchEvery, w.watch) })
	g.Go(func() error { return clock.Every(ctx, w.WatchEvery, w.balance) })
	g.Go(func() error { return clock.Every(ctx, foldEvery, w.fold) })
	if w.Masters != nil {
		g.Go(func() error { return clock.Every(ctx, returnEvery, w.wakeAfterReturn) })
	}
	return g.Wait()
}

// decode reads the payload of a job and, unless state is nil, the state that an earlier attempt
// stored. A job that cannot be decoded is given up, because a retry would fail too.
func decode(j *queue.Job, payload, state any) error {
	if err := json.Unmarshal(j.Payload, payload); err != nil {
		return queue.GiveUp(fmt.Errorf("read payload: %w", err))
	}
	if state == nil || j.State == nil {
		return nil
	}
	if err := json.Unmarshal(j.State, state); err != nil {
		return queue.GiveUp(fmt.Errorf("read state: %w", err))
	}
	return nil
}

// Package workers is what happens after a commit: the distributor fans posts
// out, the reconciler makes feeds agree with changed relations, the trimmer
// keeps the bounds, the monitor raises alarms.
//
// All of it is level-triggered: a job names what changed, and its handler reads
// the truth anew. Running a job twice, late, or beside its opposite leaves the
// feeds as SQL has them. Nothing here decides who may see what: package feed
// does, again, when somebody reads.
//
// A fan-out costs the smaller of two things, and little beside: an index range of
// the author's followers and of those who mute the author, with a list of the
// active users or a look-up of each follower; or a list of the active users, and
// one look-up for each. And one ZADD for each follower who is active. Followers
// who are away cost nothing where they are the many. If Redis is wiped meanwhile,
// it costs a look at each active user too. A changed relation costs what
// feed.Agree does, twice.
package workers

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// Config is what Workers work with. All fields without a default are required.
type Config struct {
	DB        *ent.Client
	Feed      *feed.Feed
	Timelines *timeline.Store
	Queue     *queue.Queue
	Publisher *live.Publisher

	// PageSize is how many followers are read and pushed to at a time. Defaults
	// to 3000.
	PageSize int
	// KeepEvery is how much of a long fan-out is done before its progress is
	// stored again: what an interruption has repeated. Defaults to 100 ms.
	KeepEvery time.Duration
	// TrimEvery is the trimmer's period. Defaults to 1 minute.
	TrimEvery time.Duration
	// WatchEvery is the period of monitor and balancer. Defaults to 10 seconds.
	WatchEvery time.Duration
	// LagLimit is the age of a waiting job or of a finished fan-out above which
	// the monitor or the distributor raises an alarm. Defaults to the constant LagLimit.
	LagLimit time.Duration
	// Observe is told of every finished fan-out. Optional.
	Observe func(FanOutReport)
	// ObserveHealth is told what the monitor finds, ObserveCanary how long a
	// canary job took from just before it was enqueued to its worker. Optional.
	ObserveHealth func(Health)
	ObserveCanary func(time.Duration)
	// Logger defaults to discarding.
	Logger *slog.Logger
}

// Workers are the handlers of jobs and the loops beside them.
type Workers struct {
	Config
}

// New registers the handlers with the queue; Run runs them. It fails when a
// required part of the configuration is missing.
func New(cfg Config) (*Workers, error) {
	if cfg.DB == nil || cfg.Feed == nil || cfg.Timelines == nil || cfg.Queue == nil || cfg.Publisher == nil {
		return nil, errors.New("workers: DB, Feed, Timelines, Queue and Publisher are required")
	}
	if cfg.PageSize == 0 {
		cfg.PageSize = 3000
	}
	if cfg.KeepEvery == 0 {
		cfg.KeepEvery = 100 * time.Millisecond
	}
	if cfg.TrimEvery == 0 {
		cfg.TrimEvery = time.Minute
	}
	if cfg.WatchEvery == 0 {
		cfg.WatchEvery = 10 * time.Second
	}
	if cfg.LagLimit == 0 {
		cfg.LagLimit = LagLimit
	}
	if cfg.Observe == nil {
		cfg.Observe = func(FanOutReport) {}
	}
	if cfg.ObserveHealth == nil {
		cfg.ObserveHealth = func(Health) {}
	}
	if cfg.ObserveCanary == nil {
		cfg.ObserveCanary = func(time.Duration) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Workers{Config: cfg}
	cfg.Queue.Handle(feed.PostCreated, w.postCreated)
	cfg.Queue.Handle(feed.PostChanged, w.postChanged)
	cfg.Queue.Handle(feed.RelationChanged, w.relationChanged)
	cfg.Queue.Handle(feed.AuthorReturns, w.authorReturns)
	cfg.Queue.Handle(canary, w.canaryArrived)
	return w, nil
}

// Run works until ctx ends; jobs in hand are finished or handed back.
//
// Cost: of an idle process: some look-ups a second in SQL and Redis; that of the jobs
// is said with the package.
func (w *Workers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Queue.Run(ctx) })
	g.Go(func() error { return every(ctx, w.TrimEvery, w.trim) })
	g.Go(func() error { return every(ctx, w.WatchEvery, w.watch) })
	g.Go(func() error { return every(ctx, w.WatchEvery, w.balance) })
	return g.Wait()
}

// every calls do each period until ctx ends.
func every(ctx context.Context, period time.Duration, do func(context.Context)) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do(ctx)
		}
	}
}

// Package workers does what follows from a commit.
//
// Jobs are done by two roles:
//
//   - The distributor fans posts out to followers (fanout.go, fence.go, report.go, and
//     followerscan.go, which goes through the followers).
//   - The reconciler makes inboxes agree with changed relations (reconciler.go).
//     When a job of either is given up, what it may not have reached is forgotten,
//     and read from SQL (givenup.go).
//
// Beside them, six loops run in every process with workers:
//
//   - The trimmer keeps what is stored within its bounds.
//   - The eraser begins to delete the users whose time has come (eraser.go).
//   - The balancer moves authors who are pushed and pulled on to pull.
//   - The indexer makes users be found by their names who were created without words (indexer.go).
//   - The folder folds the deltas of counters.
//   - The monitor raises alarms.
//   - The waker makes the jobs due that wait for a master of Redis which serves again
//     (returned.go).
//
// In every server, a Canary measures how long the way through all of these takes (canary.go).
//
// All jobs are level-triggered: a job names what changed, and its handler reads
// the truth anew. A job that runs twice, late, or beside its opposite leaves the
// feeds as SQL has them. Nothing here decides who may see what: package feed does
// that, again at every read.
//
// A fan-out costs one ZADD for each active follower, and the cheaper of two ways
// to find these: an index range of the author's followers and muters, with a list
// of the active users or a look-up of each follower; or a list of the active
// users, with a look-up of each. Where most followers are away, these cost
// nothing. If Redis is wiped meanwhile, each active user is looked up once more. A
// changed relation costs twice what home.SyncInbox does.
package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/audit"
	"tideline/feed/home"
	"tideline/feed/job"
	"tideline/feed/visibility"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// DefaultPageSize is the default of Config.PageSize.
const DefaultPageSize = 3000

// Config configures Workers. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Visibility *visibility.Reader
	Home       *home.Home
	Sessions   *account.Sessions
	Timelines  *timeline.Store
	Queue      *queue.Queue
	Publisher  *live.Publisher

	// Masters checks all masters of Redis and returns what each answered, by address; nil
	// means that the master serves. Jobs that wait because a master could not be reached
	// are due when it serves again. Without Masters they wait for their next attempt.
	// Optional.
	Masters func(context.Context) (map[string]error, error)

	// PageSize is how many followers are read and pushed to at a time. A fan-out goes on where
	// an earlier attempt stopped, even if that attempt had pages of another size. Defaults to
	// DefaultPageSize.
	PageSize int
	// PartSize is how many followers one worker goes through, about. A fan-out to more is divided,
	// behind its first page, into parts that are jobs of their own: into 32 larger ones at most.
	// Defaults to DefaultPartSize.
	PartSize int
	// KeepEvery is how often a long fan-out stores its progress. After an
	// interruption, the work of that time, or of one page, is done again. Defaults to 100 ms.
	KeepEvery time.Duration
	// TrimEvery is the trimmer's period. Defaults to 1 minute.
	TrimEvery time.Duration
	// WatchEvery is the period of monitor and balancer. Defaults to 10 seconds.
	WatchEvery time.Duration
	// ReturnEvery is the period in which Masters is called. Defaults to 1 second.
	ReturnEvery time.Duration
	// FoldEvery is the period in which the deltas of counters are folded. Defaults to 1 second.
	FoldEvery time.Duration
	// LagLimit is the age above which a waiting job, or a finished fan-out, raises
	// an alarm. Defaults to the constant LagLimit.
	LagLimit time.Duration
	// Observe is called after every finished fan-out. Optional.
	Observe func(FanOutReport)
	// ObserveHealth is called with what the monitor has found, ObserveCanary with
	// the time that a canary took to a worker of this process. While one waits it is
	// called each WatchEvery with the time until now. Optional.
	ObserveHealth func(Health)
	ObserveCanary func(time.Duration)
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock by which posts are late and fences are set. Defaults to time.Now.
	Now func() time.Time
}

// Workers are the handlers of jobs and the loops beside them.
type Workers struct {
	Config
	audit      *audit.Audit
	company    company
	scans      *followerScans
	coalescer  *coalescer
	canaryDone atomic.Bool // since the monitor looked
	wakeOwed   bool        // a master has returned, and Wake has not succeeded since; of wakeAfterReturn
}

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	c.PageSize = cmp.Or(c.PageSize, DefaultPageSize)
	c.PartSize = cmp.Or(c.PartSize, DefaultPartSize)
	c.KeepEvery = cmp.Or(c.KeepEvery, 100*time.Millisecond)
	c.TrimEvery = cmp.Or(c.TrimEvery, time.Minute)
	c.WatchEvery = cmp.Or(c.WatchEvery, 10*time.Second)
	c.ReturnEvery = cmp.Or(c.ReturnEvery, time.Second)
	c.FoldEvery = cmp.Or(c.FoldEvery, time.Second)
	c.LagLimit = cmp.Or(c.LagLimit, LagLimit)
	if c.Observe == nil {
		c.Observe = func(FanOutReport) {}
	}
	if c.ObserveHealth == nil {
		c.ObserveHealth = func(Health) {}
	}
	if c.ObserveCanary == nil {
		c.ObserveCanary = func(time.Duration) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// validate names everything that is missing or out of bounds.
func (c Config) validate() error {
	var errs []error
	if c.DB == nil || c.Visibility == nil || c.Home == nil || c.Sessions == nil || c.Timelines == nil || c.Queue == nil || c.Publisher == nil {
		errs = append(errs, errors.New("workers: DB, Visibility, Home, Sessions, Timelines, Queue and Publisher are required"))
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
		{"KeepEvery", c.KeepEvery}, {"TrimEvery", c.TrimEvery}, {"WatchEvery", c.WatchEvery}, {"ReturnEvery", c.ReturnEvery}, {"FoldEvery", c.FoldEvery}, {"LagLimit", c.LagLimit},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("workers: %s is %v: it must be above 0", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// New registers the handlers with the queue; Run runs them. It fails when a
// required field of the configuration is missing, or another is negative.
func New(cfg Config) (*Workers, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Workers{Config: cfg, audit: audit.New(cfg.Home), company: newCompany(cfg.Visibility),
		scans: newFollowerScans(cfg.DB, cfg.Visibility, cfg.Timelines, cfg.PageSize), coalescer: newCoalescer(cfg.DB, cfg.Now)}
	cfg.Queue.Handle(job.PostCreated, w.postCreated)
	cfg.Queue.Handle(job.PostChanged, w.postChanged)
	cfg.Queue.WhenDone(job.PostCreated, w.storeFinished)
	cfg.Queue.WhenDone(job.PostChanged, w.storeFinished)
	cfg.Queue.Handle(job.RelationChanged, w.relationChanged)
	cfg.Queue.Handle(job.AuthorReturns, w.authorReturns)
	cfg.Queue.Handle(job.PostGivenUp, w.postGivenUp)
	cfg.Queue.Handle(job.RelationGivenUp, w.relationGivenUp)
	cfg.Queue.Handle(job.InboxesStale, w.inboxesStale)
	cfg.Queue.Handle(job.FeedsStale, w.feedsStale)
	cfg.Queue.Handle(job.PostsBackdated, w.postsBackdated)
	cfg.Queue.Handle(job.WordsChanged, w.wordsChanged)
	cfg.Queue.Handle(job.AuthorStale, w.postGivenUp)
	cfg.Queue.Handle(job.UserDeleted, w.userDeleted)
	cfg.Queue.Handle(job.PostErased, w.postErased)
	cfg.Queue.WhenGivenUp(job.PostCreated, job.PostGivenUp)
	cfg.Queue.WhenGivenUp(job.PostChanged, job.PostGivenUp)
	cfg.Queue.WhenGivenUp(job.RelationChanged, job.RelationGivenUp)
	cfg.Queue.Handle(job.Canary, w.canaryArrived)
	cfg.Queue.Handle(job.SubscriberCanary, w.canaryArrived)
	return w, nil
}

// Run does jobs until ctx ends. Then it finishes the jobs in hand, or hands them
// back.
//
// Cost: in an idle process, some look-ups a second in SQL and Redis. The package
// says what jobs cost.
func (w *Workers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Queue.Run(ctx) })
	g.Go(func() error { return every(ctx, w.TrimEvery, w.trim) })
	g.Go(func() error { return every(ctx, w.TrimEvery, w.deleteDue) })
	g.Go(func() error {
		w.index(ctx)
		return every(ctx, w.TrimEvery, w.index)
	})
	g.Go(func() error { return every(ctx, w.WatchEvery, w.watch) })
	g.Go(func() error { return every(ctx, w.WatchEvery, w.balance) })
	g.Go(func() error { return every(ctx, w.FoldEvery, w.fold) })
	if w.Masters != nil {
		g.Go(func() error { return every(ctx, w.ReturnEvery, w.wakeAfterReturn) })
	}
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

// decode reads the payload of a job and, unless state is nil, what an earlier attempt has
// stored. A job that cannot be read never will be: it is given up.
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

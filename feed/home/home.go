// Package home reads home timelines and keeps their feeds ready in Redis. A home timeline holds
// the viewer's own posts and the posts of the users that the viewer follows.
//
// Its invariants:
//
//   - A timeline has no gap. Below the posts that an inbox covers, and without an inbox, a page
//     continues in SQL on the same cursor.
//   - Feeds in Redis say where to look. Every post of a page passes package visibility after the
//     request began.
//   - A feed that Redis lost is built again after the answer, not before it.
//
// INBOX.md describes the life of an inbox, FANOUTMODE.md how an author moves between push and
// pull. Package timeline hides how feeds are stored in Redis.
package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// Config configures a Home. Fields without a default are required.
type Config struct {
	DB         *ent.Client
	Dialect    string // of DB: dialect.SQLite or dialect.Postgres
	Visibility *visibility.Reader
	Timelines  *timeline.Store // its inbox cap also bounds the unread count and the ranked timeline
	Queue      *queue.Queue
	Publisher  *live.Publisher

	Policy
	// Observe is called for every read of a feed: with true if Redis had the feed (a hit), with
	// false if SQL answered. Optional.
	Observe func(hit bool)
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Policy says how timelines are stored and read. Its zero value is valid.
type Policy struct {
	// PullAbove is the follower count above which an author's posts are not pushed to inboxes but
	// merged by readers. NeverPull and AlwaysPull disable and force merging. Defaults to
	// DefaultPullAbove.
	PullAbove int
	// PushAndPullFor is how long an author on the way to PULL is both pushed and merged.
	// MergedListFor is how long a process uses one list of merged authors. PushAndPullFor should be
	// at least ten times MergedListFor. They default to 30 s and 2 s.
	PushAndPullFor, MergedListFor time.Duration
	// MergeAll is the largest number of authors that a reader merges without asking first which
	// of them have posts on the page. Defaults to 200.
	MergeAll int
	// MaxPage is the largest number of entries on a page. Defaults to paging.DefaultMaxSize.
	MaxPage int
	// RankDecay is how much newer a post must be to outweigh one with ten times its likes in the
	// ranking hot. It lies between ranking.MinDecay and ranking.MaxDecay. Defaults to
	// ranking.DefaultDecay.
	RankDecay time.Duration
	// Rankings are the expressions of other rankings, by name. Optional.
	Rankings map[string]string
}

// DefaultPullAbove is the default of Policy.PullAbove.
const DefaultPullAbove = 50_000

func (p Policy) withDefaults() Policy {
	p.PullAbove = cmp.Or(p.PullAbove, DefaultPullAbove)
	p.PushAndPullFor = cmp.Or(p.PushAndPullFor, 30*time.Second)
	p.MergedListFor = cmp.Or(p.MergedListFor, 2*time.Second)
	p.MergeAll = cmp.Or(p.MergeAll, defaultMergeAll)
	p.MaxPage = cmp.Or(p.MaxPage, paging.DefaultMaxSize)
	p.RankDecay = cmp.Or(p.RankDecay, ranking.DefaultDecay)
	return p
}

// Validate returns an error that names every value out of bounds. It applies no defaults, so a
// zero RankDecay or MaxPage is out of bounds.
func (p Policy) Validate() error {
	all := []error{errs.Bound("RankDecay", p.RankDecay, ranking.MinDecay, ranking.MaxDecay)}
	if _, err := p.rankings(); err != nil {
		for line := range strings.Lines(err.Error()) {
			all = append(all, fmt.Errorf("Rankings is not valid: %s", strings.TrimSpace(line)))
		}
	}
	// From the default size of a page to the largest inbox.
	return errors.Join(append(all, errs.Bound("MaxPage", p.MaxPage, paging.DefaultSize, timeline.MaxInboxCap))...)
}

func (p Policy) rankings() (*ranking.Set, error) { return ranking.New(p.RankDecay, p.Rankings) }

// Home reads home timelines and caches their feeds. It is safe for concurrent use.
type Home struct {
	Reader      *Reader       // reads and builds feeds
	Clients     *ClientStates // tells what clients have and have missed
	Unread      *Unread       // counts unread posts
	Own         *OwnFeeds     // changes the feeds of the user who acts
	Sync        *Sync         // brings inboxes in line with changed relations
	FanOutModes *FanOutModes  // moves authors between push and pull
	Arrivals    *Arrivals     // tells which posts have arrived in inboxes
	cfg         Config
	rankings    *ranking.Set
}

// New returns a Home. It fails if a required field is missing or the policy is not valid.
func New(cfg Config) (*Home, error) {
	if cfg.DB == nil || cfg.Dialect == "" || cfg.Visibility == nil || cfg.Timelines == nil || cfg.Queue == nil || cfg.Publisher == nil {
		return nil, errors.New("home: DB, Dialect, Visibility, Timelines, Queue and Publisher are required")
	}
	cfg.Policy = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("home: %w", err)
	}
	rankings, err := cfg.rankings()
	if err != nil {
		return nil, fmt.Errorf("home: %w", err)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(bool) {}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	tl := cfg.Timelines
	arrivals := &Arrivals{queue: cfg.Queue, log: cfg.Logger, now: cfg.Now}
	merged := &mergedAuthors{db: cfg.DB, latest: tl.Latest, log: cfg.Logger, now: cfg.Now, policy: cfg.Policy}
	sync := &Sync{
		feeds: tl.Feeds, journals: tl.Journals, fences: tl.Fences, topics: tl.Topics, posts: cfg.Visibility, merged: merged,
		publisher: cfg.Publisher, log: cfg.Logger,
	}
	own := &OwnFeeds{db: cfg.DB, queue: cfg.Queue, feeds: tl.Feeds, own: tl.Own, log: cfg.Logger, sync: sync}
	reader := &Reader{
		feeds: tl.Feeds, visits: tl.Visits, posts: cfg.Visibility, log: cfg.Logger, observe: cfg.Observe, mergeAll: cfg.MergeAll,
		arrivals: arrivals, merged: merged, builder: newBuilder(tl, cfg.Logger), writes: &own.writes,
	}
	return &Home{
		Reader:      reader,
		Clients:     &ClientStates{reader: reader, journals: tl.Journals, now: cfg.Now},
		Unread:      newUnread(cfg, reader),
		Own:         own,
		Sync:        sync,
		FanOutModes: &FanOutModes{db: cfg.DB, queue: cfg.Queue, now: cfg.Now, policy: cfg.Policy},
		Arrivals:    arrivals,
		cfg:         cfg,
		rankings:    rankings,
	}, nil
}

// Run builds inboxes in the background until ctx ends. Without Run, timelines are
// complete too, but pages read SQL for feeds that are missing in Redis.
func (h *Home) Run(ctx context.Context) error { return h.Reader.builder.run(ctx) }

// Config returns the configuration of the Home, with the defaults filled in.
func (h *Home) Config() Config { return h.cfg }

// MaxPage returns the largest number of entries on a page.
func (h *Home) MaxPage() int { return h.cfg.MaxPage }

// patience is how long a page waits for Redis before SQL answers. A page whose context has a
// deadline waits at most half of the time left.
const patience = time.Second

func patiently(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := patience
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, wait)
}

// Package counts sends viewers the counts of likes, replies, reposts and quotes of the posts on their screens when they change.
//
// It is level-triggered. Every two seconds one statement reads the counts of all watched
// posts, and each viewer who was sent other counts is sent the new ones. So it needs no
// messages and no writes. After an error, the next read makes up for it.
package counts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/batch"
	"tideline/internal/clock"
)

// DefaultEvery is the time between two reads of the counts, and so between two events of a watch.
const DefaultEvery = 2 * time.Second

const (
	// atOnce is how many posts one statement reads. If more posts are
	// watched, each is read less often.
	atOnce = 5000
	// lookTimeout bounds one read of the counts, and one verdict.
	lookTimeout = 10 * time.Second
	// verdictLasts is how long a verdict may be used. It bounds how long a watch can overlook a
	// change that another process made.
	verdictLasts = 100 * time.Millisecond
)

// Config configures Counts. Fields without a default are required.
type Config struct {
	Visibility *visibility.Reader
	Sessions   *session.Store
	// Every is the time between two reads of the counts. Defaults to DefaultEvery.
	Every time.Duration
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Counts serves the watches of a process. It is safe for concurrent use.
type Counts struct {
	cfg   Config
	posts *visibility.Reader

	mu      sync.Mutex // guards the fields below, and the state of all watches
	watches map[*Watch]struct{}
	watched map[int64]*watched
	order   []*watched // all of watched, in the order in which they are read
	next    int        // index in order of the next post to read
}

// watched is a post with its watches.
type watched struct {
	id      int64
	place   int // index in Counts.order
	watches map[*Watch]struct{}
	counts  visibility.PostCounts // at the last read
	// differs says that a watch may have been sent counts other than these.
	differs bool

	verdict batch.Shared[*verdict]
}

// verdict is the verdict on a post, which its watches share for verdictLasts.
type verdict struct {
	visibility.Verdict
	at    time.Time
	users map[int64]bool
}

// New returns Counts. It fails when a required field is missing.
func New(cfg Config) (*Counts, error) {
	if cfg.Visibility == nil || cfg.Sessions == nil {
		return nil, errors.New("counts: Visibility and Sessions are required")
	}
	cfg.Every = cmp.Or(cfg.Every, DefaultEvery)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Counts{cfg: cfg, posts: cfg.Visibility, watches: map[*Watch]struct{}{}, watched: map[int64]*watched{}}, nil
}

// Watch sends the viewer the like counts of the posts until ctx or the session ends. The first event
// has all posts that the viewer may see. Each later event has the posts whose count has changed. Run
// must be running. The watch calls wake when it may have an event and when it ends, possibly before
// Watch returns. wake must return at once and must not call the watch. The caller must bound the
// number of ids. Error: Unauthenticated.
//
// Cost: none here; one query for the first event. While anybody watches, Run executes one statement
// every two seconds, for the counts of all watched posts.
func (c *Counts) Watch(ctx context.Context, v session.Viewer, ids []int64, wake func()) (*Watch, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	w := &Watch{counts: c, viewer: v, wake: wake, ids: distinct(ids), sent: map[int64]visibility.PostCounts{}, pending: map[int64]bool{}}
	c.mu.Lock()
	c.watches[w] = struct{}{}
	c.mu.Unlock()
	stop := c.cfg.Sessions.Watch(v, func() { w.end(nil) })
	context.AfterFunc(ctx, func() {
		stop()
		w.end(nil)
	})
	wake()
	return w, nil
}

// distinct returns the ids without repetitions, in their order.
func distinct(ids []int64) []int64 {
	known := make(map[int64]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		twice := known[id]
		known[id] = true
		return twice
	})
}

// Run reads the counts every Config.Every until ctx ends. Without it, watches send only their first
// event.
func (c *Counts) Run(ctx context.Context) error {
	return clock.Every(ctx, c.cfg.Every, c.look)
}

// look wakes the watches that have a new count to send.
func (c *Counts) look(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := c.compare(looking); err != nil && ctx.Err() == nil {
		c.cfg.Logger.WarnContext(ctx, "live counts not read; the next time tells", "error", err)
	}
}

// compare reads the counts, and wakes the watches that were sent other counts.
func (c *Counts) compare(ctx context.Context) error {
	turn := c.turn()
	if len(turn) == 0 {
		return nil
	}
	counts, err := c.posts.Unchecked.Counts(ctx, idsOf(turn))
	if err != nil {
		return err
	}
	told := map[*Watch]bool{}
	c.mu.Lock()
	for _, p := range turn {
		p.verdict.Forget() // its counts may be older than these
		n, found := counts[p.id]
		if !found || n == p.counts && !p.differs {
			continue
		}
		p.counts, p.differs = n, false
		for w := range p.watches {
			if sent, ok := w.sent[p.id]; !ok || sent != n {
				w.pending[p.id], told[w] = true, true
			}
		}
	}
	c.mu.Unlock()
	for w := range told {
		w.wake()
	}
	return nil
}

// turn returns the posts to read next, at most atOnce, and advances next.
func (c *Counts) turn() []*watched {
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := make([]*watched, min(atOnce, len(c.order)))
	for i := range turn {
		if c.next >= len(c.order) {
			c.next = 0
		}
		turn[i] = c.order[c.next]
		c.next++
	}
	return turn
}

// add registers the watch for changes of the post. The caller holds c.mu.
func (c *Counts) add(w *Watch, id int64) {
	p := c.watched[id]
	if p == nil {
		p = &watched{id: id, place: len(c.order), watches: map[*Watch]struct{}{}}
		c.watched[id], c.order = p, append(c.order, p)
	}
	p.watches[w] = struct{}{}
}

// remove reverts add. The caller holds c.mu.
func (c *Counts) remove(w *Watch, id int64) {
	p := c.watched[id]
	if p == nil {
		return
	}
	delete(p.watches, w)
	if len(p.watches) > 0 {
		return
	}
	last := len(c.order) - 1
	c.order[p.place], c.order[last].place = c.order[last], p.place
	c.order[last] = nil
	c.order = c.order[:last]
	delete(c.watched, id)
}

// judge returns a verdict on the post for the viewer. If it reads a new verdict, it includes all
// other viewers who have the post pending.
func (c *Counts) judge(ctx context.Context, p *watched, viewer int64) (*verdict, error) {
	holds := func(v *verdict) bool { return v.users[viewer] && c.holds(v.Version, v.at) }
	return p.verdict.Get(ctx, holds, func(ctx context.Context) (*verdict, error) {
		v := &verdict{at: c.cfg.Now(), users: map[int64]bool{viewer: true}}
		c.mu.Lock()
		for w := range p.watches {
			if w.pending[p.id] {
				v.users[w.viewer.ID] = true
			}
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		var err error
		v.Verdict, err = c.posts.JudgeDirect(ctx, p.id, slices.Collect(maps.Keys(v.users)))
		return v, err
	})
}

// holds reports whether data that was read at that time, at that version of the Reader, may still be
// sent.
func (c *Counts) holds(version int64, at time.Time) bool {
	return version == c.posts.Version() && c.cfg.Now().Sub(at) <= verdictLasts
}

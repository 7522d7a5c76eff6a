// Package counts tells viewers how often the posts on their screens are liked, whenever
// that changes.
//
// It goes by state: every two seconds one statement reads the counts of all posts that
// somebody watches, and whoever was sent another number is sent this one. So it asks for no
// message and no write, and loses nothing by an error: the next time tells.
package counts

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tideline/feed/account"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
)

// DefaultEvery is the time between two looks, and so between two events of a watch.
const DefaultEvery = 2 * time.Second

const (
	// atOnce is how many posts one look reads, and how many sessions one statement: of more
	// posts each has its turn, less often.
	atOnce = 5000
	// lookTimeout bounds one look, and one verdict.
	lookTimeout = 10 * time.Second
	// verdictLasts bounds by how much a change in another process can be overlooked: what is
	// sent later than this is judged again.
	verdictLasts = 100 * time.Millisecond
)

// Config configures Counts. Fields without a default are required.
type Config struct {
	Visibility *visibility.Reader
	Sessions   *account.Sessions
	// Every is the time between two looks. Defaults to DefaultEvery.
	Every time.Duration
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Counts has the watches of a process. It is safe for concurrent use.
type Counts struct {
	cfg   Config
	posts *visibility.Reader

	mu      sync.Mutex // also of the state of all watches
	watches map[*Watch]struct{}
	watched map[int64]*watched
	order   []*watched // for the turns
	next    int        // in order
}

// watched is a post with its watches.
type watched struct {
	id      int64
	place   int // in order
	watches map[*Watch]struct{}
	count   int // at the last look
	// differs says that a watch may have been sent another number.
	differs bool

	judging sync.Mutex
	verdict atomic.Pointer[verdict]
}

// verdict is what all watches of a post share for a moment.
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Counts{cfg: cfg, posts: cfg.Visibility, watches: map[*Watch]struct{}{}, watched: map[int64]*watched{}}, nil
}

// Watch tells the viewer the counts of the posts until ctx or the session ends. The first event has all of
// the posts that the viewer may see; the next ones have those whose count is another since.
// Run has to run. The watch calls wake whenever it may have an event, and at its end, also before Watch has
// returned; wake must return at once and must not call the watch. Who calls Watch bounds the
// number of ids. Error: Unauthenticated.
//
// Cost: none here; one query for the first event. While anybody watches, Run reads the counts
// of all posts watched, and asks about the sessions, in a statement each every two seconds.
func (c *Counts) Watch(ctx context.Context, v account.Viewer, ids []int64, wake func()) (*Watch, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	w := &Watch{counts: c, viewer: v, wake: wake, ids: distinct(ids), sent: map[int64]int{}, pending: map[int64]bool{}}
	c.mu.Lock()
	c.watches[w] = struct{}{}
	c.mu.Unlock()
	context.AfterFunc(ctx, func() { w.end(nil) })
	wake()
	return w, nil
}

// distinct returns each of the ids once, in their order.
func distinct(ids []int64) []int64 {
	known := make(map[int64]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		twice := known[id]
		known[id] = true
		return twice
	})
}

// Run looks again and again until ctx ends. Without it watches tell the first event alone.
func (c *Counts) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			c.look(ctx)
		}
	}
}

// look ends the watches whose session is over, and wakes those to whom there is something to
// tell.
func (c *Counts) look(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := c.endSessions(looking)
	if err == nil { // else somebody might be told who is signed out
		err = c.compare(looking)
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.WarnContext(ctx, "live counts not read; the next time tells", "error", err)
	}
}

func (c *Counts) endSessions(ctx context.Context) error {
	of := map[account.Grant][]*Watch{}
	c.mu.Lock()
	for w := range c.watches {
		if w.viewer.Session != 0 {
			of[w.viewer.Grant()] = append(of[w.viewer.Grant()], w)
		}
	}
	c.mu.Unlock()
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(of)), atOnce) { // no watch, no statement
		ended, err := c.cfg.Sessions.Ended(ctx, chunk)
		if err != nil {
			return err
		}
		for _, grant := range ended {
			for _, w := range of[grant] {
				w.end(nil)
			}
		}
	}
	return nil
}

// compare reads the counts, and wakes the watches that were sent others.
func (c *Counts) compare(ctx context.Context) error {
	turn := c.turn()
	if len(turn) == 0 {
		return nil
	}
	counts, err := c.posts.LikeCounts(ctx, idsOf(turn))
	if err != nil {
		return err
	}
	told := map[*Watch]bool{}
	c.mu.Lock()
	for _, p := range turn {
		p.verdict.Store(nil) // it is too old by now
		n, found := counts[p.id]
		if !found || n == p.count && !p.differs {
			continue
		}
		p.count, p.differs = n, false
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

// turn returns the posts whose turn it is.
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

// add has the watch told of the post from now on. The caller holds the lock.
func (c *Counts) add(w *Watch, id int64) {
	p := c.watched[id]
	if p == nil {
		p = &watched{id: id, place: len(c.order), watches: map[*Watch]struct{}{}}
		c.watched[id], c.order = p, append(c.order, p)
	}
	p.watches[w] = struct{}{}
}

// remove is the opposite of add. The caller holds the lock.
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

// judge gives the verdict on a post for the viewer, and at the same time for all others who
// wait for one.
func (c *Counts) judge(ctx context.Context, p *watched, viewer int64) (*verdict, error) {
	holds := func(v *verdict) bool { return v != nil && v.users[viewer] && c.holds(v.Version, v.at) }
	if v := p.verdict.Load(); holds(v) {
		return v, nil
	}
	p.judging.Lock()
	defer p.judging.Unlock()
	if v := p.verdict.Load(); holds(v) {
		return v, nil
	}
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
	if v.Verdict, err = c.posts.JudgeDirect(ctx, p.id, slices.Collect(maps.Keys(v.users))); err != nil {
		return nil, err
	}
	p.verdict.Store(v)
	return v, nil
}

// holds reports whether what was read then, at the Reader's version, may be sent now.
func (c *Counts) holds(version int64, at time.Time) bool {
	return version == c.posts.Version() && c.cfg.Now().Sub(at) <= verdictLasts
}

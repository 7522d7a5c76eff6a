package counts

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
)

// Watch is one viewer's watch of some posts. It costs no goroutine: its reader is woken, and
// asks with Next. Its methods are for one goroutine at a time.
type Watch struct {
	counts *Counts
	viewer account.Viewer
	wake   func()
	ids    []int64

	// The last event, until it is confirmed.
	at      time.Time
	version int64

	// With the lock of counts.
	begun   bool
	sent    map[int64]int  // what the client has
	pending map[int64]bool // the posts whose count may be another
	ended   bool
	err     error
}

// judged is what a query, or a verdict on one post, costs in statements: a query of the own
// posts is one.
const judged = 2.0

// Next returns the posts whose counts the client does not have, of those that the viewer may
// see; the first time all. It never waits for a count to change: ok is false when none has.
//
// Cost: one query, or a verdict on each post that all its watches share.
func (w *Watch) Next(ctx context.Context) (posts []*ent.Post, ok bool) {
	if ctx.Err() != nil {
		w.end(nil)
	}
	begun, pending, share := w.state()
	if w.Ended() || begun && len(pending) == 0 {
		return nil, false
	}
	w.at, w.version = w.counts.cfg.Now(), w.counts.posts.Version()
	var err error
	switch {
	case !begun:
		posts, err = w.read(ctx, w.ids)
	case share:
		posts, err = w.judge(ctx, pending)
	default:
		posts, err = w.read(ctx, idsOf(pending))
	}
	switch {
	case err != nil && begun:
		w.counts.cfg.Logger.WarnContext(ctx, "changed counts not sent; the next time tells", "viewer", w.viewer.ID, "error", err)
		w.settle(pending, true)
		return nil, false
	case err != nil:
		w.end(err)
		return nil, false
	case !begun:
		return posts, true
	}
	posts = w.unsent(posts)
	w.settle(slices.DeleteFunc(pending, func(p *watched) bool {
		return slices.ContainsFunc(posts, func(sent *ent.Post) bool { return sent.ID == p.id })
	}), false)
	return posts, len(posts) > 0
}

// state returns what there is to tell; share says that verdicts which others use as well
// cost less than a query.
func (w *Watch) state() (begun bool, pending []*watched, share bool) {
	c := w.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	cost := 0.0
	for _, id := range w.ids {
		if w.pending[id] && !w.ended {
			p := c.watched[id]
			pending = append(pending, p)
			cost += judged / float64(len(p.watches))
		}
	}
	return w.begun, pending, cost <= 1
}

// read returns those of the posts that the viewer may see.
func (w *Watch) read(ctx context.Context, ids []int64) ([]*ent.Post, error) {
	posts, err := w.counts.posts.Posts(ctx, visibility.Direct, w.viewer.ID, ids, visibility.Likes)
	return slices.DeleteFunc(posts, func(p *ent.Post) bool { return p == nil }), err
}

// judge is read by verdicts that all watches of a post share.
func (w *Watch) judge(ctx context.Context, pending []*watched) (posts []*ent.Post, err error) {
	for _, p := range pending {
		v, err := w.counts.judge(ctx, p, w.viewer.ID)
		if err != nil {
			return nil, err
		}
		if v.at.Before(w.at) {
			w.at = v.at
		}
		w.version = min(w.version, v.Version)
		if v.Sees(w.viewer.ID) {
			posts = append(posts, v.Post)
		}
	}
	return posts, nil
}

// unsent returns the posts with another count than the client has.
func (w *Watch) unsent(posts []*ent.Post) []*ent.Post {
	c := w.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(posts, func(p *ent.Post) bool {
		n, ok := w.sent[p.ID]
		return ok && n == p.LikeCount
	})
}

// settle takes posts of which nothing is sent; again says that they are to be compared once
// more.
func (w *Watch) settle(posts []*watched, again bool) {
	c := w.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range posts {
		delete(w.pending, p.id)
		sent, ok := w.sent[p.id]
		p.differs = p.differs || again || ok && sent != p.count
	}
}

// Confirm reports whether the response to the last event, which is made by now, may be sent:
// its verdict is young, or the viewer may still see all its posts. Otherwise Next is to
// return the others.
//
// Cost: none, or one query when making the response took long or something was hidden
// meanwhile.
func (w *Watch) Confirm(ctx context.Context, event []*ent.Post, _ bool) bool {
	c := w.counts
	if !c.holds(w.version, w.at) {
		seen, err := w.read(ctx, rows.PostIDs(event))
		if err != nil {
			w.end(err)
		}
		if err != nil || len(seen) < len(event) {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.ended {
		return false
	}
	if !w.begun {
		w.begun = true
		for _, id := range w.ids {
			c.add(w, id)
		}
	}
	for _, post := range event {
		w.sent[post.ID] = post.LikeCount
		delete(w.pending, post.ID)
		p := c.watched[post.ID]
		p.differs = p.differs || p.count != post.LikeCount
	}
	return true
}

// end ends the watch, if it has not ended.
func (w *Watch) end(err error) {
	c := w.counts
	c.mu.Lock()
	if w.ended {
		c.mu.Unlock()
		return
	}
	w.ended, w.err = true, err
	delete(c.watches, w)
	for _, id := range w.ids {
		c.remove(w, id)
	}
	c.mu.Unlock()
	w.wake()
}

// Ended reports whether nothing will come any more.
func (w *Watch) Ended() bool {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	return w.ended
}

// Err is why a watch ended that could not go on: another one begins with all counts. It is
// nil of one that ended otherwise.
func (w *Watch) Err() error {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	return w.err
}

// Shared returns no event: each is made for its viewer.
func (*Watch) Shared() (event []*ent.Post, ok bool) { return nil, false }

// TakeShared takes nothing, as Shared returns nothing.
func (*Watch) TakeShared([]*ent.Post) bool { return false }

// AppendOwn appends nothing, as Shared returns nothing.
func (*Watch) AppendOwn(b []byte, _ []*ent.Post) []byte { return b }

// TellBy has no use for tell, as Shared returns nothing.
func (*Watch) TellBy(func() (wait <-chan struct{})) {}

func idsOf(posts []*watched) []int64 {
	ids := make([]int64, len(posts))
	for i, p := range posts {
		ids[i] = p.id
	}
	return ids
}

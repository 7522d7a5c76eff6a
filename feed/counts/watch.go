package counts

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// Watch is one viewer's watch of some posts. It has no goroutine: it wakes its reader, and the reader
// calls Next. Only one goroutine at a time may use it.
type Watch struct {
	counts *Counts
	viewer session.Viewer
	wake   func()
	ids    []int64

	// The time and the Reader's version of the last event's verdict, for Confirm.
	at      time.Time
	version int64

	// Guarded by counts.mu.
	begun   bool                            // the first event was confirmed
	sent    map[int64]visibility.PostCounts // the counts that the client has
	pending map[int64]bool                  // the posts whose count may differ from sent
	ended   bool
	err     error
}

// judged is the cost of a verdict on one post for all its watches. The unit is the cost of one query
// of this watch's pending posts.
const judged = 2.0

// Next returns the posts that the viewer may see and whose counts the client does not have; the first
// time, all that the viewer may see. It never waits for a change: ok is false if there is none.
//
// Cost: one query, or one verdict per post that all its watches share.
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

// state returns the pending posts. share says that verdicts, shared with the other watches, cost less
// than a query.
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

// read returns the posts that the viewer may see.
func (w *Watch) read(ctx context.Context, ids []int64) ([]*ent.Post, error) {
	posts, err := w.counts.posts.Posts(ctx, visibility.Direct, w.viewer.ID, ids, visibility.Likes)
	return slices.DeleteFunc(posts, func(p *ent.Post) bool { return p == nil }), err
}

// judge is like read, but uses verdicts that all watches of a post share.
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

// unsent returns the posts whose count the client does not have.
func (w *Watch) unsent(posts []*ent.Post) []*ent.Post {
	c := w.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(posts, func(p *ent.Post) bool {
		n, ok := w.sent[p.ID]
		return ok && n == visibility.CountsOf(p)
	})
}

// settle removes posts from pending that the event does not contain. If again is true, the next read
// compares them again.
func (w *Watch) settle(posts []*watched, again bool) {
	c := w.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range posts {
		delete(w.pending, p.id)
		sent, ok := w.sent[p.id]
		p.differs = p.differs || again || ok && sent != p.counts
	}
}

// Confirm reports whether the response to the last event may be sent: its verdict has not expired, or
// the viewer may still see all its posts. If so, Confirm records the event as sent. If not, the caller
// must call Next again.
//
// Cost: none, or one query if making the response took longer than a verdict lasts or something was
// hidden meanwhile.
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
		w.sent[post.ID] = visibility.CountsOf(post)
		delete(w.pending, post.ID)
		p := c.watched[post.ID]
		p.differs = p.differs || p.counts != visibility.CountsOf(post)
	}
	return true
}

// end ends the watch, unless it has ended.
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

// Ended reports whether the watch has ended.
func (w *Watch) Ended() bool {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	return w.ended
}

// Err returns the error that ended the watch, nil if it ended otherwise. After an error the client
// may watch again; the new watch begins with all counts.
func (w *Watch) Err() error {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	return w.err
}

func idsOf(posts []*watched) []int64 {
	ids := make([]int64, len(posts))
	for i, p := range posts {
		ids[i] = p.id
	}
	return ids
}

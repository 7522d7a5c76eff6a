package home

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/ranking"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// rankedCursor names the posts that a reader of the ranked timeline has been shown. Every cursor
// of that order carries it. Likes move posts while a reader pages, so a position between two
// scores would show some posts twice and others never. A page after a cursor has the best posts
// that have not been shown; a page before it has posts that were.
//
// A cursor stays valid if its ranking gets another expression, for example by a restart: the
// remaining posts then come in the new order. Posts that are newer than the first page are not
// shown until the reader starts again. Older posts that a follow or a wider visibility adds are
// shown if they lie in the window; see maxRankedShown.
type rankedCursor struct {
	ranking string // the name, "" for ranking.Hot
	window  timeline.Range
	shown   []int64 // ascending, including the entry whose cursor it is
}

// tail encodes the ranked cursor as the tail of a cursor.
//
//	ranking its name and a zero byte; absent for ranking.Hot, whose cursors are of another list
//	window  two uvarints: its lower bound and its size
//	shown   uvarint distances, each from the post before, the first from the lower bound
func (c rankedCursor) tail() string {
	b := make([]byte, 0, 64+5*len(c.shown))
	if c.ranking != "" {
		b = append(append(b, c.ranking...), 0)
	}
	b = binary.AppendUvarint(b, uint64(c.window.After))
	b = binary.AppendUvarint(b, uint64(c.window.Before-c.window.After))
	last := c.window.After
	for _, id := range c.shown {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return string(b)
}

// rankedCursorIn decodes the ranked cursor in the tail of a cursor. Error: BadInput, also for a
// cursor of a ranking with another name.
func rankedCursorIn(tail, name string) (c rankedCursor, err error) {
	if c.ranking = name; name != "" {
		of, rest, found := strings.Cut(tail, "\x00")
		if !found {
			return c, paging.ErrNotACursor
		}
		if of != name {
			return c, paging.ErrOtherList
		}
		tail = rest
	}
	b := []byte(tail)
	next := func() int64 {
		u, n := binary.Uvarint(b)
		if n <= 0 || u > 1<<53 {
			b, err = nil, paging.ErrNotACursor
			return 0
		}
		b = b[n:]
		return int64(u)
	}
	c.window.After = next()
	c.window.Before = c.window.After + next()
	for last := c.window.After; err == nil && len(b) > 0; {
		last += next()
		c.shown = append(c.shown, last)
	}
	return c, err
}

func (c rankedCursor) has(id int64) bool {
	_, found := slices.BinarySearch(c.shown, id)
	return found
}

// with returns the cursor after one more post has been shown. without returns the cursor before
// that post.
func (c rankedCursor) with(id int64) rankedCursor {
	at, found := slices.BinarySearch(c.shown, id)
	if !found {
		c.shown = slices.Insert(slices.Clone(c.shown), at, id)
	}
	return c
}

func (c rankedCursor) without(id int64) rankedCursor {
	c.shown = rows.Without(c.shown, []int64{id})
	return c
}

// Rankings returns the rankings by which a timeline may be ordered.
func (h *Home) Rankings() *ranking.Set { return h.rankings }

// maxRankedShown bounds the posts in the window of a ranked cursor, and so the posts that a
// reader may be shown from the first page on. A window begins with at most as many posts as an
// inbox. So the same number may be added, for example by a follow of an author with many posts,
// before the oldest posts are left out.
func maxRankedShown(inboxCap int) int { return 2 * inboxCap }

// MostRanked returns how many posts a page of a ranked timeline reads at most.
func (h *Home) MostRanked() int { return maxRankedShown(h.Reader.feeds.InboxCap()) }

// ranked returns a page of the newest posts of the timeline, up to the inbox cap, ordered by
// their scores in the named ranking. The position of an entry is its score and id.
//
// Cost: independent of the size of the page. It reads up to the inbox cap of posts and their
// scores; after a cursor, also the posts that were added since the first page, up to
// maxRankedShown.
func (h *Home) ranked(ctx context.Context, v session.Viewer, p paging.Page, name string) (*paging.Connection[ent.Post], error) {
	by, err := h.rankings.Named(name)
	if err != nil {
		return nil, err
	}
	list := paging.RankedBy
	if name = by.Name; name == ranking.Hot {
		list, name = paging.Ranked, "" // its cursors existed before there were other rankings
	}
	w, err := paging.Open(p, list, v.ID, h.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	var after, before rankedCursor
	if w.Before != nil {
		if before, err = rankedCursorIn(w.Before.Tail, name); err != nil {
			return nil, err
		}
		after.window = before.window
	}
	if w.After != nil {
		if after, err = rankedCursorIn(w.After.Tail, name); err != nil {
			return nil, err
		}
	}
	begins, most := after.window == timeline.Range{}, maxRankedShown(h.Reader.feeds.InboxCap())
	limit := most
	if begins {
		limit = h.Reader.feeds.InboxCap()
	}
	at := h.Reader.Visit(ctx, v.ID)
	bounded, stopped := visibility.Bounded(mostLookedAtOnce, h.Reader.cached(h.Reader.inbox(v.ID), prefetch{}))
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, after.window.First(limit), bounded)
	if err != nil {
		return nil, err
	}
	state, err := h.Clients.Of(ctx, v, at, posts, len(posts) == limit || *stopped != 0)
	if err != nil {
		return nil, err
	}
	if begins && len(posts) > 0 {
		after.window = timeline.Range{After: posts[len(posts)-1].ID - 1, Before: posts[0].ID + 1}
	}
	if w.Before == nil { // the end of the list, after everything
		before.shown = rows.PostIDs(posts)
		slices.Sort(before.shown)
	} else {
		before = before.without(w.Before.ID)
	}
	before.window, before.ranking, after.ranking = after.window, name, name
	var left []*ent.Post
	for _, p := range posts {
		if before.has(p.ID) && !after.has(p.ID) {
			left = append(left, p)
		}
	}
	scores, err := by.Scores(ctx, ranking.Source{DB: h.cfg.DB, Posts: h.cfg.Visibility}, v.ID, h.cfg.Now(), left)
	if err != nil {
		return nil, err
	}
	entries := make([]*paging.Edge[ent.Post], len(left))
	for i, p := range left {
		entries[i] = &paging.Edge[ent.Post]{Score: scores[i], Node: p}
	}
	slices.SortFunc(entries, func(a, b *paging.Edge[ent.Post]) int {
		down := cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Node.ID, a.Node.ID))
		if w.Backwards {
			return -down
		}
		return down
	})
	room := w.N + 1
	if !w.Backwards { // a cursor must have room for the shown posts
		room = min(room, max(most-len(after.shown), 0))
	}
	entries = entries[:min(len(entries), room)]
	for _, e := range entries {
		at := before // downwards all posts shown so far, upwards all that remain
		if !w.Backwards {
			after = after.with(e.Node.ID)
			at = after
		}
		e.Cursor = paging.Cursor{Score: e.Score, ID: e.Node.ID, Tail: at.tail()}.Encode(list, v.ID)
		before = before.without(e.Node.ID)
	}
	page := paging.Connect(w, entries, func(e *paging.Edge[ent.Post]) paging.Edge[paging.Edge[ent.Post]] {
		return paging.Edge[paging.Edge[ent.Post]]{Node: e}
	})
	// A stream continues from all posts that were ranked, not only from those on the page.
	newest := max(after.window.Before-1, 0)
	state = state.UpTo(newest)
	c := &paging.Connection[ent.Post]{
		HasNextPage: page.HasNextPage, HasPreviousPage: page.HasPreviousPage, Position: state.Cursor(v, newest),
	}
	for _, e := range page.Nodes() {
		c.Edges = append(c.Edges, *e)
	}
	return c, nil
}

package home

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/timeline"
)

// Bounds of Policy.RankDecay, and its default: Reddit's 45,000 seconds.
const (
	MinRankDecay     = time.Minute
	DefaultRankDecay = 12*time.Hour + 30*time.Minute
	MaxRankDecay     = 8760 * time.Hour
)

// weightless is the time at which a post without likes weighs nothing. Earlier ones
// weigh less than nothing.
var weightless = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Weight is what the ranked timeline orders by: the decimal logarithm of the likes
// plus the time from the beginning of 2024 to the post in units of the decay. The
// decay is how much newer a post must be to outweigh one with ten times its likes.
// It is Reddit's "hot" ranking (reddit r2, lib/db/_sorts.pyx) for posts that cannot
// be voted down. It uses the time of the post and not the present time, so a weight
// changes only when a like does. The decay must be positive.
func Weight(likes int, created time.Time, decay time.Duration) float64 {
	return math.Log10(float64(max(likes, 1))) + created.Sub(weightless).Seconds()/decay.Seconds()
}

// rankedCursor names the posts that a reader of the ranked timeline has been shown.
// Every cursor of that order carries it. Likes move posts while a reader pages, so
// a position between two weights would show some posts twice and others never. A
// page after a cursor has the best posts that have not been shown, a page before it
// has posts that were. So a cursor stays valid under another Policy.RankDecay, as
// after a restart: the remaining posts then come in the new order. Posts since the
// first page are not shown until the reader starts anew. Older posts that a follow
// or a widened visibility adds are shown if they lie in the window; see
// maxRankedShown.
type rankedCursor struct {
	window timeline.Range
	shown  []int64 // ascending, with the entry whose cursor it is
}

// tail encodes the ranked cursor as part of a cursor.
//
//	window  two uvarints: its lower bound and its size
//	shown   uvarint distances, each from the post before, the first from the lower bound
func (c rankedCursor) tail() string {
	b := binary.AppendUvarint(make([]byte, 0, 16+5*len(c.shown)), uint64(c.window.After))
	b = binary.AppendUvarint(b, uint64(c.window.Before-c.window.After))
	last := c.window.After
	for _, id := range c.shown {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return string(b)
}

// rankedCursorIn decodes the ranked cursor in the tail of a cursor. Error:
// BadInput.
func rankedCursorIn(tail string) (c rankedCursor, err error) {
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

// with returns the cursor after one more post has been shown; without returns the
// cursor before that post.
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

// maxRankedShown bounds the posts in the window of a ranked cursor, and those that
// a reader may be shown from the first page on. A window begins with at most as
// many posts as an inbox. So the same number may be added, for example by a follow
// of an author with many posts, before the oldest posts are left out.
func maxRankedShown(inboxCap int) int { return 2 * inboxCap }

// ranked orders the newest posts of the timeline, up to the inbox cap, by weight.
// An entry's position is the pair of weight and id. Its cost does not depend on the
// page: it reads up to the inbox cap of posts, or after a cursor also those that
// were added since the first page, up to maxRankedShown.
func (h *Home) ranked(ctx context.Context, v account.Viewer, p paging.Page) (*paging.Connection[ent.Post], error) {
	w, err := paging.Open(p, paging.Ranked, v.ID, h.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	var after, before rankedCursor
	if w.Before != nil {
		if before, err = rankedCursorIn(w.Before.Tail); err != nil {
			return nil, err
		}
		after.window = before.window
	}
	if w.After != nil {
		if after, err = rankedCursorIn(w.After.Tail); err != nil {
			return nil, err
		}
	}
	begins, most := after.window == timeline.Range{}, maxRankedShown(h.tl.InboxCap())
	limit := most
	if begins {
		limit = h.tl.InboxCap()
	}
	at := h.Visit(ctx, v.ID)
	posts, err := h.fill(ctx, v.ID, prefetch{}, after.window.First(limit))
	if err != nil {
		return nil, err
	}
	state, err := h.ClientStateOf(ctx, v, at, posts, len(posts) == limit)
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
	before.window = after.window
	entries := make([]*paging.Edge[ent.Post], 0, len(posts))
	for _, p := range posts {
		if before.has(p.ID) && !after.has(p.ID) {
			entries = append(entries, &paging.Edge[ent.Post]{Score: Weight(p.LikeCount, ids.TimeOf(p.ID), h.cfg.RankDecay), Node: p})
		}
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
		at := before // downwards all that were shown so far, upwards all that remain
		if !w.Backwards {
			after = after.with(e.Node.ID)
			at = after
		}
		e.Cursor = paging.Cursor{Score: e.Score, ID: e.Node.ID, Tail: at.tail()}.Encode(paging.Ranked, v.ID)
		before = before.without(e.Node.ID)
	}
	page := paging.Connect(w, entries, func(e *paging.Edge[ent.Post]) paging.Edge[paging.Edge[ent.Post]] {
		return paging.Edge[paging.Edge[ent.Post]]{Node: e}
	})
	// A stream goes on from the posts that were ranked, not from those that are shown.
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

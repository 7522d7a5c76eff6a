package feed

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"tideline/ent"
)

// Bounds of Config.RankDecay, and what it is by default: Reddit's 45,000 seconds.
const (
	leastRankDecay = time.Minute
	rankDecay      = 12*time.Hour + 30*time.Minute
	mostRankDecay  = 8760 * time.Hour
)

// Weight is what the ranked timeline orders by: the decimal logarithm of the
// likes plus the age of the epoch at the time of the post in units of the decay,
// which is how much newer a post must be to outweigh one with ten times its
// likes. It is Reddit's "hot" ranking (reddit r2, lib/db/_sorts.pyx) for posts
// that cannot be voted down. Because a post's age enters as its birth and not
// as "now", a weight changes only when a like does. The decay must be positive.
func Weight(likes int, created time.Time, decay time.Duration) float64 {
	return math.Log10(float64(max(likes, 1))) + created.Sub(idEpoch).Seconds()/decay.Seconds()
}

// rankedCursor is a reader's way through the ranked timeline, as every cursor carries
// it. Likes move posts while somebody pages, so a place between two weights would
// show some posts twice and others never. What has been shown is therefore named
// post by post: a page after a cursor is the best of what has not been shown, a
// page before it comes from what has. So a cursor holds under another
// Config.RankDecay too, as after a restart: what is left then comes in the new
// order. What is posted since the first page is not on the way; it is there when
// the reader starts anew. Of the older posts that come in by a follow or are shown
// to more, those are on the way that lie in the window; see longestWay.
type rankedCursor struct {
	window span
	shown  []int64 // ascending, with the entry whose cursor it is
}

// tail is the passage as part of a cursor.
//
//	window  two uvarints: its lower bound and its size
//	shown   uvarint distances, each from the post before, the first from the lower bound
func (p rankedCursor) tail() string {
	b := binary.AppendUvarint(make([]byte, 0, 16+5*len(p.shown)), uint64(p.window.low))
	b = binary.AppendUvarint(b, uint64(p.window.high-p.window.low))
	last := p.window.low
	for _, id := range p.shown {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return string(b)
}

// passage is the passage in a cursor of the ranked timeline.
func (c cursor) passage() (p rankedCursor, err error) {
	b := []byte(c.tail)
	next := func() int64 {
		u, n := binary.Uvarint(b)
		if n <= 0 || u > 1<<53 {
			b, err = nil, refuse(BadInput, "That is not a cursor of this server.")
			return 0
		}
		b = b[n:]
		return int64(u)
	}
	p.window.low = next()
	p.window.high = p.window.low + next()
	for last := p.window.low; err == nil && len(b) > 0; {
		last += next()
		p.shown = append(p.shown, last)
	}
	return p, err
}

func (p rankedCursor) has(id int64) bool {
	_, found := slices.BinarySearch(p.shown, id)
	return found
}

// with is the passage after one more post has been shown, without the one before
// it was.
func (p rankedCursor) with(id int64) rankedCursor {
	at, found := slices.BinarySearch(p.shown, id)
	if !found {
		p.shown = slices.Insert(slices.Clone(p.shown), at, id)
	}
	return p
}

func (p rankedCursor) without(id int64) rankedCursor {
	p.shown = without(p.shown, []int64{id})
	return p
}

// maxRankedShown is how many posts the window of a passage may come to hold, and how
// many a reader may be shown on one way. A window begins with at most an inbox's
// worth, so as much may come into it, as by a follow of somebody with many posts,
// before the oldest that were there all along are passed over.
func (f *Feed) maxRankedShown() int { return 2 * f.cfg.InboxCap }

// ranked orders the newest posts of the timeline, as many as an inbox holds, by
// weight. An entry's place is the pair of weight and id. Its cost, whatever the
// page, is that of reading an inbox's worth of posts, or after a cursor as many
// more as have come in since the first page, up to longestWay.
func (f *Feed) ranked(ctx context.Context, v Viewer, p Page) (*Connection[ent.Post], error) {
	w, err := f.open(p, listRanked, v.ID)
	if err != nil {
		return nil, err
	}
	var after, before rankedCursor
	if w.before != nil {
		if before, err = w.before.passage(); err != nil {
			return nil, err
		}
		after.window = before.window
	}
	if w.after != nil {
		if after, err = w.after.passage(); err != nil {
			return nil, err
		}
	}
	begins, most := after.window == span{}, f.maxRankedShown()
	if begins {
		most = f.cfg.InboxCap
	}
	posts, err := f.fill(ctx, HomeTimeline, v.ID, most, after.window, f.cached(f.inbox(v.ID)))
	if err != nil {
		return nil, err
	}
	if begins && len(posts) > 0 {
		after.window = span{low: posts[len(posts)-1].ID - 1, high: posts[0].ID + 1}
	}
	if w.before == nil { // the end of the list, behind everything
		before.shown = idsOf(posts)
		slices.Sort(before.shown)
	} else {
		before = before.without(w.before.id)
	}
	before.window = after.window
	entries := make([]*Edge[ent.Post], 0, len(posts))
	for _, p := range posts {
		if before.has(p.ID) && !after.has(p.ID) {
			entries = append(entries, &Edge[ent.Post]{Score: Weight(p.LikeCount, TimeOf(p.ID), f.cfg.RankDecay), Node: p})
		}
	}
	slices.SortFunc(entries, func(a, b *Edge[ent.Post]) int {
		down := cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(b.Node.ID, a.Node.ID))
		if w.backwards {
			return -down
		}
		return down
	})
	room := w.n + 1
	if !w.backwards { // what has been shown must fit into a cursor
		room = min(room, max(f.maxRankedShown()-len(after.shown), 0))
	}
	entries = entries[:min(len(entries), room)]
	for _, e := range entries {
		at := before // downwards all that came so far, upwards all that is left
		if !w.backwards {
			after = after.with(e.Node.ID)
			at = after
		}
		e.Cursor = cursor{score: e.Score, id: e.Node.ID, tail: at.tail()}.encode(listRanked, v.ID)
		before = before.without(e.Node.ID)
	}
	page := connect(w, entries, func(e *Edge[ent.Post]) Edge[Edge[ent.Post]] { return Edge[Edge[ent.Post]]{Node: e} })
	c := &Connection[ent.Post]{HasNextPage: page.HasNextPage, HasPreviousPage: page.HasPreviousPage}
	for _, e := range page.Nodes() {
		c.Edges = append(c.Edges, *e)
	}
	return c, nil
}

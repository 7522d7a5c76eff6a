// Package clientstate records which posts of a home timeline a client has. The state is part of the
// client's cursor. The server stores no state of a client, only the journal of each inbox.
//
// A client has missed the posts that its timeline has now and that the client did not have when
// it got its cursor. The state stays small because there are two kinds of posts:
//
//   - A post in time reaches the timeline or its stream at most LateAfter after it was made. Its
//     id gives that time. So only posts within the arrival grace of the cursor can still be in
//     flight. The cursor names those of them that the client has, and any other was missed. The
//     client has all older posts.
//   - A late post has a journal entry in the inbox, as does every post that is removed. The cursor
//     carries the position up to which the client knows the journal.
//
// A client may have read a post in SQL before the fan-out of the post. While a fan-out is later
// than the arrival grace, the cursor also names the posts since that fan-out: otherwise the
// client would get them again when they arrive.
//
// A timeline may get more posts within the arrival grace than a cursor can name. Then the cursor
// names only the newest posts. Of the others the client has all that had come when the inbox was
// settled, that is, when its floor was raised above them. The inbox counts posts that come below
// that floor later ([timeline.Settled]), and a digest tells of posts that come to merged
// outboxes. The cursor carries the count and the digest. If both are the same when the client
// comes back, no post came there.
//
// So nothing depends on the order in which posts arrive. The clocks of processes must differ by
// less than the margin between LateAfter and the arrival grace. A state describes one moment: the
// moment of a read, or a moment up to which a live stream has missed no event.
package clientstate

import (
	"encoding/binary"
	"slices"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/timeline"
)

const (
	// MaxRecent is how many posts above a settled floor a cursor names.
	MaxRecent = 512
	// maxNamed bounds the posts that a cursor names before the inbox is settled anew: the posts
	// of the largest page, or MaxRecent and the posts that a client has missed. Such a cursor
	// takes about 6 KB.
	maxNamed = 2048
	// maxKnown bounds the posts that a state remembers. It remembers them in memory only, so that
	// a live stream sends no post twice.
	maxKnown = 4 * maxNamed
)

// State records the posts that a client is known to have of its timeline.
type State struct {
	// Position is the client's position in the journal of the inbox: the client
	// knows the changes up to there.
	Position timeline.Position
	low      int64   // the client has all posts at or below it, unless they came late
	recent   []int64 // posts above low that the client has, ascending
	// The client has every post at or below from that had come when the inbox was settled.
	from    int64
	settled Settled
}

// Settled tells whether a post has come at or below the bound since the inbox was settled.
type Settled struct {
	Under int64 // see timeline.Settled
	// Merged is the digest of the posts that came to merged outboxes at or below High; see
	// timeline.Digest. It is 0 if reads merge no outboxes.
	Merged    uint64
	Low, High int64
}

// New returns the state of a client that has all posts at or below low, unless they came late,
// and knows the journal up to the position.
func New(at timeline.Position, low int64) State { return State{Position: at, low: low} }

// Has reports whether the state names the post as one that the client has.
func (c *State) Has(post int64) bool {
	_, found := slices.BinarySearch(c.recent, post)
	return found
}

// Knows reports whether the client has the post, provided that the post is in the timeline.
func (c *State) Knows(post int64) bool { return post <= c.low || c.Has(post) }

// MayHave is Knows, except that it is also true for all posts at or below Bound. The client has
// most of them.
func (c *State) MayHave(post int64) bool { return post <= c.Bound() || c.Has(post) }

// Bound returns the id above which the state names the posts that the client has: Low, or a
// higher id at which the inbox was settled. At or below Bound, the client has all posts that had
// come when the inbox was settled.
func (c *State) Bound() int64 { return max(c.low, c.from) }

// Settle records that the inbox was settled, and read in the same step or later. So the client
// has all posts that had come at or below the bound. Settle ignores a bound below Low, or below
// an earlier bound.
func (c *State) Settle(bound int64, how Settled) {
	if bound > c.Bound() {
		c.from, c.settled = bound, how
		c.forget()
	}
}

// Settled returns how the inbox was settled. ok is false if it was not, or if Low has passed the
// bound, so that the state does not depend on it.
func (c *State) Settled() (how Settled, ok bool) { return c.settled, c.from > c.low }

// Named returns how many posts the state names above Bound. nth is the n-th newest of them, 0 if
// there are fewer.
func (c *State) Named(n int) (named int, nth int64) {
	first, _ := slices.BinarySearch(c.recent, c.Bound()+1)
	if named = len(c.recent) - first; n <= named {
		nth = c.recent[len(c.recent)-n]
	}
	return named, nth
}

// Low returns the id at or below which the client has all posts, unless they came late.
func (c *State) Low() int64 { return c.low }

// Newest returns the newest post above Low that the client has, 0 if it has none.
func (c *State) Newest() int64 {
	if len(c.recent) == 0 {
		return 0
	}
	return c.recent[len(c.recent)-1]
}

// Oldest returns the oldest post above Low that the client has, 0 if it has none.
func (c *State) Oldest() int64 {
	if len(c.recent) == 0 {
		return 0
	}
	return c.recent[0]
}

// Take records that the client has received the post.
func (c *State) Take(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); !found {
		c.recent = slices.Insert(c.recent, at, post)
	}
}

// Drop records that the client has lost the post.
func (c *State) Drop(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); found {
		c.recent = slices.Delete(c.recent, at, at+1)
	}
}

// Retain records that the client has no posts above Low except the given ones.
func (c *State) Retain(posts []*ent.Post) {
	keep := rows.PostIDs(posts)
	c.recent = slices.DeleteFunc(c.recent, func(id int64) bool { return id > c.low && !slices.Contains(keep, id) })
}

// Advance raises Low. While the state names more than MaxRecent posts, Advance forgets the oldest
// of those that are now at or below Low.
func (c *State) Advance(low int64) {
	c.low = max(c.low, low)
	c.forgetTo(c.low, MaxRecent)
}

// forget bounds the posts at or below Bound that the state remembers.
func (c *State) forget() { c.forgetTo(c.Bound(), maxKnown) }

// forgetTo forgets the oldest posts at or below an id while the state has more than most.
func (c *State) forgetTo(id int64, most int) {
	if spare := len(c.recent) - most; spare > 0 {
		below, _ := slices.BinarySearch(c.recent, id+1)
		c.recent = slices.Delete(c.recent, 0, min(spare, below))
	}
}

// UpTo returns the state of a client that has no post newer than the id.
func (c *State) UpTo(id int64) State {
	end, _ := slices.BinarySearch(c.recent, id+1)
	return State{c.Position, min(c.low, id), c.recent[:end], min(c.from, id), c.settled}
}

// settledMark begins the tail of a state whose inbox was settled. No epoch has this bit.
const settledMark = 1 << 63

// appendTail appends the state as the tail of a cursor. It appends nothing if the state does not
// fit: the client then cannot resume without reading again.
//
//	epoch, offset, low  uvarints
//	recent              uvarint distances, each from the post before, the first from low
//
// If the inbox was settled:
//
//	settledMark, epoch, offset, low  uvarints
//	from                             uvarint distance from low
//	under, merged, digest's low      uvarints
//	digest's high                    uvarint distance from its low
//	recent                           as above, the first from from
func (c *State) appendTail(b []byte) []byte {
	bound := c.Bound()
	first, _ := slices.BinarySearch(c.recent, bound+1)
	recent := c.recent[first:]
	if len(recent) > maxNamed || c.Position.Epoch == 0 {
		return b
	}
	settled := bound > c.low
	if settled {
		b = binary.AppendUvarint(b, settledMark)
	}
	b = binary.AppendUvarint(b, uint64(c.Position.Epoch))
	b = binary.AppendUvarint(b, uint64(c.Position.Offset))
	b = binary.AppendUvarint(b, uint64(c.low))
	if settled {
		b = binary.AppendUvarint(b, uint64(bound-c.low))
		b = binary.AppendUvarint(b, uint64(c.settled.Under))
		b = binary.AppendUvarint(b, c.settled.Merged)
		b = binary.AppendUvarint(b, uint64(c.settled.Low))
		b = binary.AppendUvarint(b, uint64(c.settled.High-c.settled.Low))
	}
	last := bound
	for _, id := range recent {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return b
}

// Decode decodes the state in the tail of a cursor. ok is false if the tail has none.
func Decode(tail string) (c State, ok bool) {
	b := []byte(tail)
	read := func() (u uint64) {
		u, n := binary.Uvarint(b)
		if n <= 0 {
			b, ok = nil, false
			return 0
		}
		b = b[n:]
		return u
	}
	next := func() int64 {
		u := read()
		if u > 1<<62 {
			b, ok = nil, false
			return 0
		}
		return int64(u)
	}
	ok = true
	mark, n := binary.Uvarint(b)
	settled := n > 0 && mark == settledMark
	if settled {
		b = b[n:]
	}
	c.Position = timeline.Position{Epoch: next(), Offset: next()}
	c.low = next()
	last := c.low
	if settled {
		c.from = c.low + next()
		c.settled = Settled{Under: next(), Merged: read(), Low: next()}
		c.settled.High = c.settled.Low + next()
		last = c.from
	}
	for ok && len(b) > 0 {
		last += next()
		c.recent = append(c.recent, last)
	}
	return c, ok
}

// Cursor returns the cursor of an entry in the viewer's timeline, for a client in this state.
func (c *State) Cursor(v session.Viewer, id int64) string {
	return string(c.AppendCursor(make([]byte, 0, 1024), v, id)) // on the stack; most cursors fit
}

// AppendCursor appends the text that Cursor returns.
func (c *State) AppendCursor(b []byte, v session.Viewer, id int64) []byte {
	return paging.Cursor{Score: float64(id), ID: id}.Append(b, paging.Latest, v.ID, c.appendTail)
}

// Entry returns the post as an entry of the viewer's timeline in the order Latest, for a client
// in this state.
func (c *State) Entry(v session.Viewer, p *ent.Post) paging.Edge[ent.Post] {
	return paging.Edge[ent.Post]{Cursor: c.Cursor(v, p.ID), Score: float64(p.ID), Node: p}
}

// Holding returns the cursor of a client that holds the page. The state must be from the time
// when the page was read.
//
// The client reads the posts below the page later, and the cursor carries the state for that. For
// a page before a cursor, the client has read the posts below earlier, so the state of that
// cursor applies to them. An empty page adds nothing to the state of its cursor. Without a
// cursor, an empty page is an empty timeline.
func (c *State) Holding(v session.Viewer, w paging.Window, page *paging.Connection[ent.Post]) string {
	newest, from := int64(0), w.Before
	if len(page.Edges) > 0 {
		newest = page.Edges[0].Node.ID
	} else if from == nil {
		from = w.After
	}
	state := c.UpTo(newest)
	if from != nil {
		if state, _ = Decode(from.Tail); state.Position.Epoch != 0 {
			for _, p := range page.Nodes() {
				state.Take(p.ID)
			}
		}
		newest = max(newest, from.ID)
	}
	return state.Cursor(v, newest)
}

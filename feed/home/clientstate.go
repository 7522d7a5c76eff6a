package home

import (
	"context"
	"encoding/binary"
	"slices"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// What a client has missed is what its timeline has now and the client did not
// have when it was given its cursor. A cursor therefore carries the client's state,
// in a form that stays small because posts fall into two kinds:
//
//   - A post in time is in the timeline, or told of, at most LateAfter after it was
//     made. Its id says when that was, so only those made within the arrival grace of
//     the cursor can be on their way still. Of these the cursor names the ones that
//     its client has; every other one that turns up was missed. All older ones the
//     client has.
//   - A late post is noted in the journal of the inbox, as is every post that is
//     taken out. The cursor carries the position up to which the journal is known.
//
// A client may have read a post in SQL before its fan-out came: while one is later
// than the arrival grace, what was made since it is named too, or it would be told
// again when it comes.
//
// So nothing depends on the order in which posts arrive, and nothing is kept for
// a client but the journal. It holds while the clocks of processes differ by less
// than what the arrival grace leaves beyond LateAfter, the time a silent connection
// to Redis takes to be noticed included.

// maxRecent is how many posts within the arrival grace a cursor can name. Of a
// timeline that takes more in that time a client that resumes has to read again.
const maxRecent = 512

// ClientState says what a client is known to have of its timeline.
type ClientState struct {
	// Position is where the client is in the journal of the inbox: it knows the
	// changes up to there.
	Position timeline.Position
	low      int64   // posts at or below it the client has, unless they came late
	recent   []int64 // posts above low that the client has, ascending
}

// Has reports whether the post is one of those above Low that the client has.
func (c *ClientState) Has(post int64) bool {
	_, found := slices.BinarySearch(c.recent, post)
	return found
}

// Low is the id at or below which the client has all posts, unless they came late.
func (c *ClientState) Low() int64 { return c.low }

// Newest is the newest of the posts above Low that the client has, 0 when it has
// none.
func (c *ClientState) Newest() int64 {
	if len(c.recent) == 0 {
		return 0
	}
	return c.recent[len(c.recent)-1]
}

// Take notes that the client gets the post.
func (c *ClientState) Take(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); !found {
		c.recent = slices.Insert(c.recent, at, post)
	}
}

// Drop notes that the client loses the post.
func (c *ClientState) Drop(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); found {
		c.recent = slices.Delete(c.recent, at, at+1)
	}
}

// Retain notes that of the posts above Low the client has no other than these.
func (c *ClientState) Retain(posts []*ent.Post) {
	keep := rows.PostIDs(posts)
	c.recent = slices.DeleteFunc(c.recent, func(id int64) bool { return id > c.low && !slices.Contains(keep, id) })
}

// Advance lifts Low, and forgets the posts below of which there are too many to
// remember: those above maxRecent.
func (c *ClientState) Advance(low int64) {
	c.low = max(c.low, low)
	if spare := len(c.recent) - maxRecent; spare > 0 {
		below, _ := slices.BinarySearch(c.recent, c.low+1)
		c.recent = slices.Delete(c.recent, 0, min(spare, below))
	}
}

// upTo is the state of a client that has nothing newer than the post.
func (c *ClientState) upTo(id int64) ClientState {
	end, _ := slices.BinarySearch(c.recent, id+1)
	return ClientState{c.Position, min(c.low, id), c.recent[:end]}
}

// tail is the state as part of a cursor; empty when it does not fit: the client
// cannot resume without reading again.
//
//	epoch, offset, low  uvarints
//	recent              uvarint distances, each from the post before, the first from low
func (c *ClientState) tail() string {
	first, _ := slices.BinarySearch(c.recent, c.low+1)
	recent := c.recent[first:]
	if len(recent) > maxRecent || c.Position.Epoch == 0 {
		return ""
	}
	b := make([]byte, 0, 128) // most fit, on the stack
	b = binary.AppendUvarint(b, uint64(c.Position.Epoch))
	b = binary.AppendUvarint(b, uint64(c.Position.Offset))
	b = binary.AppendUvarint(b, uint64(c.low))
	last := c.low
	for _, id := range recent {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return string(b)
}

// clientStateIn is the state in the tail of a cursor; ok is false when it does not
// tell.
func clientStateIn(tail string) (c ClientState, ok bool) {
	b := []byte(tail)
	next := func() (v int64) {
		u, n := binary.Uvarint(b)
		if n <= 0 || u > 1<<62 {
			b, ok = nil, false
			return 0
		}
		b = b[n:]
		return int64(u)
	}
	ok = true
	c.Position = timeline.Position{Epoch: next(), Offset: next()}
	c.low = next()
	for last := c.low; ok && len(b) > 0; {
		last += next()
		c.recent = append(c.recent, last)
	}
	return c, ok
}

// Cursor is the cursor of an entry in the viewer's timeline, for a client in this
// state.
func (c *ClientState) Cursor(v account.Viewer, id int64) string {
	return paging.Cursor{Score: float64(id), ID: id, Tail: c.tail()}.Encode(paging.Latest, v.ID)
}

// Entry is the post as an entry of the viewer's timeline in the order Latest, for a
// client in this state.
func (c *ClientState) Entry(v account.Viewer, p *ent.Post) paging.Edge[ent.Post] {
	return paging.Edge[ent.Post]{Cursor: c.Cursor(v, p.ID), Score: float64(p.ID), Node: p}
}

// Entry is the post as an entry of the viewer's timeline in the order Latest,
// for a client that has the timeline from there downwards.
func (h *Home) Entry(ctx context.Context, v account.Viewer, p *ent.Post) (paging.Edge[ent.Post], error) {
	at := h.Visit(ctx, v.ID)
	state, err := h.ClientStateOf(ctx, v, at, []*ent.Post{p}, true)
	state = state.upTo(p.ID)
	return state.Entry(v, p), err
}

// Visit makes the user active and says where the journal of the inbox stands. An
// inbox that is missing begins here, so that all is noted from before the read
// that follows. When Redis does not answer, the read goes on in SQL, and the
// position is none.
//
// Cost: one round trip; another one where the inbox is missing.
func (h *Home) Visit(ctx context.Context, user int64) timeline.Position {
	at, err := h.tl.Visit(ctx, user)
	at, begun := h.visited(ctx, user, at, err)
	if begun != nil {
		h.builder.soon(h.inbox(user), begun)
	}
	return at
}

// visitInbox is Visit, and the source of the timeline for a page that begins with
// the range.
func (h *Home) visitInbox(ctx context.Context, user int64, r timeline.Range) (timeline.Position, visibility.Source) {
	feed := h.inbox(user)
	list, unlisted := h.merged.list(ctx)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := h.tl.VisitPage(patient, user, r)
	at, begun := h.visited(patient, user, at, err)
	if err != nil {
		feed.observe(false)
		return at, feed.truth
	}
	known := prefetch{begun: begun}
	if unlisted == nil {
		known.asked, known.part, known.merged = r, part, &list
	}
	return at, h.cached(feed, known)
}

// visited is the position that a visit to the inbox told, or that of the build
// that it begins, which is for the caller to have done.
func (h *Home) visited(ctx context.Context, user int64, at timeline.Position, err error) (timeline.Position, *timeline.Build) {
	if err == nil && at.Epoch == 0 {
		var b timeline.Build
		var started bool
		if b, started, err = h.tl.Begin(ctx, timeline.Inbox(user)); started {
			return b.Position(), &b
		}
		if err == nil { // somebody else has just begun
			at, err = h.tl.Visit(ctx, user)
		}
	}
	if err != nil {
		h.log.WarnContext(ctx, "user not made active", "user", user, "error", err)
		return timeline.Position{}, nil
	}
	return at, nil
}

// ClientStateOf is the state of a client that has the timeline from the highest of
// the posts, which are a part of it, downwards; all of it when there are none. More
// says whether there may be something below the lowest of them.
//
// Cost: none for posts older than the arrival grace, else that of recentIDs.
func (h *Home) ClientStateOf(ctx context.Context, v account.Viewer, at timeline.Position, posts []*ent.Post, more bool) (ClientState, error) {
	c := ClientState{Position: at, low: h.ArrivedID(ctx)}
	below := int64(0)
	for _, p := range posts {
		if p.ID > c.low {
			c.Take(p.ID)
		}
		if below == 0 || p.ID < below {
			below = p.ID
		}
	}
	if !more || at.Epoch == 0 || below != 0 && below <= c.low+1 {
		return c, nil
	}
	list, told, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.low, Before: below}, below == 0)
	if !told {
		c.Position = timeline.Position{}
	}
	for _, id := range list {
		c.Take(id)
	}
	return c, err
}

// ClientStateAt is the state of a client that resumes after a cursor; ok is false
// when too much was posted since for a state to tell.
//
// Cost: none for a cursor that carries the state, else that of recentIDs.
func (h *Home) ClientStateAt(ctx context.Context, v account.Viewer, after paging.Cursor) (c ClientState, ok bool, err error) {
	if c, ok = clientStateIn(after.Tail); ok {
		return c, true, nil
	}
	// The cursor tells an entry and no more: what lies above it is missed. What
	// lies below the client reads again, and may be on its way still.
	c = ClientState{low: min(after.ID, h.ArrivedID(ctx))}
	list, _, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.low, Before: after.ID + 1}, true)
	if err != nil || len(list) > maxRecent {
		return c, false, err
	}
	for _, id := range list {
		c.Take(id)
	}
	return c, true, nil
}

// recentIDs is the ids of those of the user's timeline in a range that the user may
// be shown, the newest of them, one more than a cursor can name at the most: a cursor
// is plain to read. What an inbox has and hides is told when it is shown, as is all
// that the client does not have.
//
// Cost with an inbox: as a page of all these posts, so one round trip, and a query
// when there are any. Without one a page does not wait for that: told is false
// unless it must be, and the client cannot resume from it.
func (h *Home) recentIDs(ctx context.Context, user int64, r timeline.Range, must bool) (list []int64, told bool, err error) {
	var known prefetch
	merged, err := h.merged.list(ctx) // before the inbox is read: see prefetch
	if err != nil {
		return nil, false, err
	}
	r.Limit = maxRecent + 1
	found, covered, err := h.tl.Page(ctx, timeline.Inbox(user), r)
	if err == nil {
		if covered.State != timeline.Ready && !must {
			return nil, false, nil
		}
		known = prefetch{merged: &merged, asked: r, part: timeline.Part{IDs: found, Coverage: covered}}
	}
	posts, err := h.fill(ctx, user, h.inbox(user), known, r)
	return rows.PostIDs(posts), true, err
}

// Since reads the posts of the viewer's timeline above the id, as many as an inbox
// keeps, from its newest end or, ascending, from the id on. Whole is false when there
// may be more.
//
// Cost: as a page of so many posts.
func (h *Home) Since(ctx context.Context, v account.Viewer, id int64, ascending bool) (posts []*ent.Post, whole bool, err error) {
	limit := h.tl.InboxCap()
	posts, err = h.fill(ctx, v.ID, h.inbox(v.ID), prefetch{}, timeline.Range{After: id, Limit: limit, Ascending: ascending})
	return posts, len(posts) < limit, err
}

// Changes are those that the journal of the viewer's inbox has since the position,
// and where it stands now. Not whole: nobody knows what they were.
//
// Cost: one round trip.
func (h *Home) Changes(ctx context.Context, v account.Viewer, since timeline.Position) (changes []timeline.Change, now timeline.Position, whole bool) {
	changes, now, whole, err := h.tl.Changes(ctx, v.ID, since)
	if err != nil && ctx.Err() == nil {
		// A client that cannot be told what changed is told that much.
		h.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
	}
	return changes, now, whole
}

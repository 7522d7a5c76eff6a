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

// A client has missed the posts that its timeline has now and that the client did
// not have when it was given its cursor. A cursor therefore carries the client
// state. It stays small because posts fall into two kinds:
//
//   - A post in time reaches the timeline or its stream at most LateAfter after it
//     was made. Its id gives the time, so only posts that were made within the
//     arrival grace of the cursor can still be on their way. Of these the cursor
//     names the ones that its client has; any other that appears was missed. The
//     client has all older ones.
//   - A late post has a journal entry in the inbox, as has every post that is
//     removed. The cursor carries the position up to which the client knows the
//     journal.
//
// A client may have read a post in SQL before its fan-out came. While a fan-out is
// later than the arrival grace, the cursor also names the posts since then, because
// otherwise the client gets them again when they arrive.
//
// So nothing depends on the order in which posts arrive, and the server stores
// nothing for a client but the journal. This is true while the clocks of processes
// differ by less than the margin between LateAfter and the arrival grace. That
// margin includes the time that it takes to notice a silent connection to Redis.

// maxRecent is how many posts within the arrival grace a cursor can name. When a
// timeline gets more in that time, a client that resumes has to read it again.
const maxRecent = 512

// ClientState has the posts that a client is known to have of its timeline.
type ClientState struct {
	// Position is the client's position in the journal of the inbox: the client
	// knows the changes up to there.
	Position timeline.Position
	low      int64   // the client has the posts at or below it, unless they came late
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

// Take records that the client gets the post.
func (c *ClientState) Take(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); !found {
		c.recent = slices.Insert(c.recent, at, post)
	}
}

// Drop records that the client loses the post.
func (c *ClientState) Drop(post int64) {
	if at, found := slices.BinarySearch(c.recent, post); found {
		c.recent = slices.Delete(c.recent, at, at+1)
	}
}

// Retain records that of the posts above Low the client has only these.
func (c *ClientState) Retain(posts []*ent.Post) {
	keep := rows.PostIDs(posts)
	c.recent = slices.DeleteFunc(c.recent, func(id int64) bool { return id > c.low && !slices.Contains(keep, id) })
}

// Advance raises Low. When the state names more than maxRecent posts, it forgets the
// excess of those that are now at or below Low.
func (c *ClientState) Advance(low int64) {
	c.low = max(c.low, low)
	if spare := len(c.recent) - maxRecent; spare > 0 {
		below, _ := slices.BinarySearch(c.recent, c.low+1)
		c.recent = slices.Delete(c.recent, 0, min(spare, below))
	}
}

// upTo returns the state of a client that has nothing newer than the post.
func (c *ClientState) upTo(id int64) ClientState {
	end, _ := slices.BinarySearch(c.recent, id+1)
	return ClientState{c.Position, min(c.low, id), c.recent[:end]}
}

// tail encodes the state as part of a cursor. It is empty when the state does not
// fit: the client cannot resume without reading again.
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

// clientStateIn decodes the state in the tail of a cursor; ok is false when the
// tail has none.
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

// Visit is the moment at which a user began to read. The client state that follows
// from the read is that of this moment, however long the read takes.
type Visit struct {
	timeline.Position       // the end of the inbox's journal
	arrived           int64 // ArrivedID
}

// Visit makes the user active. It begins a missing inbox, so that every change is
// journaled from before the read that follows. When Redis does not answer, the read
// goes on in SQL, and the position is zero.
//
// Cost: one round trip; another one where the inbox is missing.
func (h *Home) Visit(ctx context.Context, user int64) Visit {
	arrived := h.ArrivedID(ctx)
	at, err := h.tl.Visit(ctx, user)
	at, begun := h.visited(ctx, user, at, err)
	if begun != nil {
		h.builder.soon(h.inbox(user), begun)
	}
	return Visit{at, arrived}
}

// visitInbox is Visit. It also returns the source of the timeline for a page that
// begins with the range.
func (h *Home) visitInbox(ctx context.Context, user int64, r timeline.Range) (Visit, visibility.Source) {
	feed, arrived := h.inbox(user), h.ArrivedID(ctx)
	list, unlisted := h.merged.list(ctx)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := h.tl.VisitPage(patient, user, r)
	at, begun := h.visited(patient, user, at, err)
	if err != nil {
		feed.observe(false)
		return Visit{at, arrived}, feed.truth
	}
	known := prefetch{begun: begun}
	if unlisted == nil {
		known.asked, known.part, known.merged = r, part, &list
	}
	return Visit{at, arrived}, h.cached(feed, known)
}

// visited returns the position from a visit to the inbox, or that of the build that
// it begins. The caller must pass that build to a builder.
func (h *Home) visited(ctx context.Context, user int64, at timeline.Position, err error) (timeline.Position, *timeline.Build) {
	if err == nil && at.Epoch == 0 {
		var b timeline.Build
		var started bool
		if b, started, err = h.tl.Begin(ctx, timeline.Inbox(user)); started {
			return b.Position(), &b
		}
		if err == nil { // another request has just begun
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
// the posts downwards; the posts are a part of it, and were read after the visit. Without posts the client has all
// of it. More says whether the timeline may go on below the lowest of them.
//
// Cost: none for posts older than the arrival grace, else that of recentIDs.
func (h *Home) ClientStateOf(ctx context.Context, v account.Viewer, at Visit, posts []*ent.Post, more bool) (ClientState, error) {
	c := ClientState{Position: at.Position, low: at.arrived}
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
// when too much was posted since for a client state.
//
// Cost: none for a cursor that carries the state, else that of recentIDs.
func (h *Home) ClientStateAt(ctx context.Context, v account.Viewer, after paging.Cursor) (c ClientState, ok bool, err error) {
	if c, ok = clientStateIn(after.Tail); ok {
		return c, true, nil
	}
	// The cursor names only an entry: the client has missed what lies above it. The
	// client reads again what lies below, some of which may still be on its way.
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

// recentIDs returns the newest ids of a range of the user's timeline that the user
// may be shown, at most one more than a cursor can name. It leaves out hidden posts
// of an inbox, because a client can read what a cursor says. A hidden post is sent
// when it is shown, as is every post that the client does not have.
//
// Cost with an inbox: as a page of all these posts, so one round trip, and a query
// when there are any. Without an inbox told is false and the client cannot resume,
// unless the caller says must: a page does not wait for the query.
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

// Since reads the posts of the viewer's timeline above the id, at most as many as
// the inbox cap. It reads from the newest end or, ascending, from the id on. Whole
// is false when there may be more. It visits the inbox.
//
// Cost: as a page of so many posts.
func (h *Home) Since(ctx context.Context, v account.Viewer, id int64, ascending bool) (posts []*ent.Post, whole bool, err error) {
	r := timeline.Range{After: id, Limit: h.tl.InboxCap(), Ascending: ascending}
	_, from := h.visitInbox(ctx, v.ID, r)
	posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	return posts, len(posts) < r.Limit, err
}

// Changes returns the changes in the journal of the viewer's inbox since the
// position, and the present position. When it is not whole, some changes are
// unknown.
//
// Cost: one round trip.
func (h *Home) Changes(ctx context.Context, v account.Viewer, since timeline.Position) (changes []timeline.Change, now timeline.Position, whole bool) {
	changes, now, whole, err := h.tl.Changes(ctx, v.ID, since)
	if err != nil && ctx.Err() == nil {
		// The caller sees that the changes are not whole.
		h.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
	}
	return changes, now, whole
}

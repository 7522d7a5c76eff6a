package home

import (
	"context"
	"time"

	"tideline/ent"
	"tideline/feed/account"
	"tideline/feed/clientstate"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// Entry is the post as an entry of the viewer's timeline in the order Latest,
// for a client that has the timeline from there downwards.
func (h *Home) Entry(ctx context.Context, v account.Viewer, p *ent.Post) (paging.Edge[ent.Post], error) {
	at := h.Visit(ctx, v.ID)
	state, err := h.ClientStateOf(ctx, v, at, []*ent.Post{p}, true)
	state = state.UpTo(p.ID)
	return state.Entry(v, p), err
}

// Visit is the moment at which a user began to read. The client state that follows
// from the read is that of this moment, however long the read takes.
type Visit struct {
	timeline.Position       // the end of the inbox's journal
	arrived           int64 // ArrivedID
	generation        int64 // of the inbox, where the read began with a page of it
}

// Visit makes the user active. It begins a missing inbox, so that every change is
// journaled from before the read that follows. When Redis does not answer, the read
// goes on in SQL, and the position is zero.
//
// Cost: one round trip; another one where the inbox is missing.
func (h *Home) Visit(ctx context.Context, user int64) Visit {
	arrived := h.ArrivedID(ctx)
	at, err := h.tl.Visit(ctx, user)
	at, begun := h.builder.visited(ctx, user, at, err)
	if begun != nil {
		h.builder.soon(h.inbox(user), begun)
	}
	return Visit{Position: at, arrived: arrived}
}

// visitInbox is Visit. It also returns the source of the timeline for a page that
// begins with the range, and has the fields of its posts. Wait says that a missing inbox is
// built before and not behind the read, if it does not take long.
func (h *Home) visitInbox(ctx context.Context, user int64, r timeline.Range, with visibility.Fields, wait bool) (Visit, visibility.Source) {
	feed, arrived := h.inbox(user), h.ArrivedID(ctx)
	feed.with = with
	list, unlisted := h.merged.mergeable(ctx, user)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := h.tl.VisitPage(patient, user, r)
	at, begun := h.builder.visited(patient, user, at, err)
	if err != nil {
		feed.observe(false)
		return Visit{Position: at, arrived: arrived}, feed.truth
	}
	if begun != nil && wait && h.builder.now(ctx, feed, begun) {
		return h.visitInbox(ctx, user, r, with, false)
	}
	known := prefetch{begun: begun}
	if unlisted == nil {
		known.asked, known.part, known.mergeable = r, part, &list
	}
	return Visit{at, arrived, part.Generation}, h.cached(feed, known)
}

// visited returns the position from a visit to the inbox, or that of the build that
// it begins. The caller must pass that build to a builder.
func (b *builder) visited(ctx context.Context, user int64, at timeline.Position, err error) (timeline.Position, *timeline.Build) {
	if err == nil && at.Epoch == 0 {
		var build timeline.Build
		var started bool
		if build, started, err = b.tl.Begin(ctx, timeline.Inbox(user)); started {
			return build.Position(), &build
		}
		if err == nil { // another request has just begun
			at, err = b.tl.Visit(ctx, user)
		}
	}
	if err != nil {
		b.log.WarnContext(ctx, "user not made active", "user", user, "error", err)
		return timeline.Position{}, nil
	}
	return at, nil
}

// ClientStateOf is the state of a client that has the timeline from the highest of
// the posts downwards; the posts are a part of it, and were read after the visit.
// Without posts the client has all of it. More says whether the timeline may go on below the lowest of them.
//
// Cost: none for posts older than the arrival grace, else that of recentIDs.
func (h *Home) ClientStateOf(ctx context.Context, v account.Viewer, at Visit, posts []*ent.Post, more bool) (clientstate.State, error) {
	c := clientstate.New(at.Position, at.arrived)
	below := int64(0)
	for _, p := range posts {
		if p.ID > c.Low() {
			c.Take(p.ID)
		}
		if below == 0 || p.ID < below {
			below = p.ID
		}
	}
	if !more || at.Epoch == 0 || below != 0 && below <= c.Low()+1 {
		return c, nil
	}
	list, told, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.Low(), Before: below}, below == 0)
	if !told {
		c.Position = timeline.Position{}
	}
	for _, id := range list {
		c.Take(id)
	}
	return c, err
}

// ClientStateNow is the state of a client that has all of the viewer's timeline. It visits
// the inbox. A missing one is built first: the stream that begins would read SQL for the
// state, and again to catch up, beside the build that reads the same.
//
// Cost: as a page of the posts that are younger than the arrival grace; and as BuildInbox
// where the inbox is missing.
func (h *Home) ClientStateNow(ctx context.Context, v account.Viewer) (clientstate.State, error) {
	low := h.ArrivedID(ctx)
	r := timeline.Range{After: low, Limit: clientstate.MaxRecent + 1}
	at, from := h.visitInbox(ctx, v.ID, r, 0, true)
	c := clientstate.New(at.Position, low)
	if at.Epoch == 0 { // Redis does not answer, so the client cannot resume
		return c, nil
	}
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	for _, p := range posts {
		c.Take(p.ID)
	}
	return c, err
}

// clockSlack is by how much the clock of the process that made a cursor may be ahead.
const clockSlack = time.Minute

// ClientStateAt is the state of a client that resumes after a cursor; ok is false
// when too much was posted since for a client state, and for a made-up cursor of the future.
//
// Cost: none for a cursor that carries the state, else that of recentIDs.
func (h *Home) ClientStateAt(ctx context.Context, v account.Viewer, after paging.Cursor) (c clientstate.State, ok bool, err error) {
	if c, ok = clientstate.Decode(after.Tail); ok {
		// No server says that a client has posts of the future: to go on from such a state
		// would leave out all posts until then, without a word.
		return c, c.Low() <= ids.At(h.cfg.Now().Add(clockSlack)), nil
	}
	// The cursor names only an entry: the client has missed what lies above it. The
	// client reads again what lies below, some of which may still be on its way.
	c = clientstate.New(timeline.Position{}, min(after.ID, h.ArrivedID(ctx)))
	list, _, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.Low(), Before: after.ID + 1}, true)
	if err != nil || len(list) > clientstate.MaxRecent {
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
func (h *Home) recentIDs(ctx context.Context, user int64, r timeline.Range, must bool) (ids []int64, told bool, err error) {
	var known prefetch
	list, err := h.merged.mergeable(ctx, user) // before the inbox is read: see prefetch
	if err != nil {
		return nil, false, err
	}
	r.Limit = clientstate.MaxRecent + 1
	found, covered, err := h.tl.Page(ctx, timeline.Inbox(user), r)
	if err == nil {
		if covered.State != timeline.Ready && !must {
			return nil, false, nil
		}
		known = prefetch{mergeable: &list, asked: r, part: timeline.Part{IDs: found, Coverage: covered}}
	}
	posts, err := visibility.Fill(ctx, visibility.Home, user, r, h.cached(h.inbox(user), known))
	return rows.PostIDs(posts), true, err
}

// Since reads the posts of the viewer's timeline above the id, at most as many as the
// inbox cap, with all that an event may show of them. It reads from the newest end or,
// ascending, from the id on. Whole is false when there may be more. It visits the inbox.
//
// Cost: as a page of so many posts.
func (h *Home) Since(ctx context.Context, v account.Viewer, id int64, ascending bool) (posts []*ent.Post, whole bool, err error) {
	r := timeline.Range{After: id, Limit: h.tl.InboxCap(), Ascending: ascending}
	_, from := h.visitInbox(ctx, v.ID, r, visibility.All, false)
	posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	return posts, len(posts) < r.Limit, err
}

// Missed is what happened to a timeline since a client's state.
type Missed struct {
	timeline.Since // the client's position
	// Posts, oldest first, are those above the client's low that it may be shown and does not
	// have, and some that it has. More says that there may be more.
	Posts []*ent.Post
	More  bool
	// Arrived is an ArrivedID from before all was read.
	Arrived int64
}

// MissedSince reads what the client misses, the journal first. When it is not whole, some
// changes are unknown, and nothing was read. It visits the inbox.
//
// A post that the client has can add nothing, whatever the verdict on it is now. So it is
// not read, and where an inbox has no other, SQL is not asked.
//
// Cost: one round trip; and as a page of the posts that the client does not have, if any.
func (h *Home) MissedSince(ctx context.Context, v account.Viewer, c *clientstate.State) (m Missed, whole bool, err error) {
	m.Arrived = h.ArrivedID(ctx)
	r := timeline.Range{After: c.Low(), Limit: h.tl.InboxCap(), Ascending: true}
	list, unlisted := h.merged.mergeable(ctx, v.ID) // before the inbox is read: see prefetch
	m.Since, whole, err = h.tl.VisitSince(ctx, v.ID, c.Position, r)
	if err != nil && ctx.Err() == nil {
		h.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
	}
	if err != nil || !whole {
		return Missed{}, false, nil
	}
	known := prefetch{mergeable: &list, asked: r, part: m.Part}
	if unlisted != nil {
		known = prefetch{}
	}
	feed := h.inbox(v.ID)
	feed.had, feed.with = c.Has, visibility.All
	m.Posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, h.cached(feed, known))
	m.More = len(m.Posts) == r.Limit
	return m, true, err
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

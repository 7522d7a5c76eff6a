package home

import (
	"context"
	"math"
	"slices"
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
	// All that comes at or below bound from now on is found by how the inbox was settled. It is
	// 0 where that is not known.
	bound   int64
	settled clientstate.Settled
}

// state is the state of a client that has read nothing yet of what is above the bound.
func (at Visit) state() clientstate.State {
	c := clientstate.New(at.Position, at.arrived)
	c.Settle(at.bound, at.settled)
	return c
}

// Visit makes the user active. It begins a missing inbox, so that every change is
// journaled from before the read that follows. When Redis does not answer, the read
// goes on in SQL, and the position is zero.
//
// Cost: one round trip; another one where the inbox is missing.
func (h *Home) Visit(ctx context.Context, user int64) Visit {
	visit := Visit{arrived: h.ArrivedID(ctx)}
	at, part, err := h.tl.VisitSettled(ctx, user, timeline.Range{}, settleAbove(visit.arrived))
	at, begun := h.builder.visited(ctx, user, at, err)
	if begun != nil {
		h.builder.soon(h.inbox(user), begun)
	}
	visit.Position = at
	list, err := h.merged.mergeable(ctx, user)
	h.settledAt(ctx, user, &visit, part, list, err)
	return visit
}

// settleAbove asks for an inbox to be settled, so that a cursor can name what lies above its
// floor and is younger than the arrival grace.
func settleAbove(arrived int64) timeline.Settle {
	return timeline.Settle{Above: arrived, Keep: clientstate.MaxRecent}
}

// settledAt notes how the inbox was settled by the visit, of which part is the answer. It must
// come before anything is read of the outboxes that are merged; list and err are what
// mergeable returned.
func (h *Home) settledAt(ctx context.Context, user int64, visit *Visit, part timeline.Part, list []int64, err error) {
	if part.Epoch != visit.Epoch || part.Settled.Floor-1 <= visit.arrived {
		return // a cursor names all that is young
	}
	how := clientstate.Settled{Under: part.Settled.Under, Low: visit.arrived, High: part.Settled.Floor - 1}
	if err == nil {
		how.Merged, err = h.mergedDigest(ctx, user, list, how.Low, how.High)
	}
	if err != nil {
		h.log.WarnContext(ctx, "outboxes not looked at; a cursor names what it can", "viewer", user, "error", err)
		return
	}
	visit.bound, visit.settled = part.Settled.Floor-1, how
}

// visitInbox is Visit. It also returns the source of the timeline for a page that
// begins with the range, and has the fields of its posts. Wait says that a missing inbox is
// built before and not behind the read, if it does not take long.
func (h *Home) visitInbox(ctx context.Context, user int64, r timeline.Range, with visibility.Fields, wait bool) (Visit, visibility.Source) {
	feed, visit := h.inbox(user), Visit{arrived: h.ArrivedID(ctx)}
	feed.with = with
	list, unlisted := h.merged.mergeable(ctx, user)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := h.tl.VisitSettled(patient, user, r, settleAbove(visit.arrived))
	at, begun := h.builder.visited(patient, user, at, err)
	visit.Position = at
	if err != nil {
		feed.observe(false)
		return visit, feed.truth
	}
	if begun != nil && wait && h.builder.now(ctx, feed, begun) {
		return h.visitInbox(ctx, user, r, with, false)
	}
	h.settledAt(patient, user, &visit, part, list, unlisted)
	known := prefetch{begun: begun}
	if unlisted == nil {
		known.asked, known.part, known.mergeable = r, part, &list
	}
	visit.generation = part.Generation
	return visit, h.cached(feed, known)
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
// Cost: none for posts older than the arrival grace, else that of recentIDs; and that of
// settle where these are more than a cursor names.
func (h *Home) ClientStateOf(ctx context.Context, v account.Viewer, at Visit, posts []*ent.Post, more bool) (clientstate.State, error) {
	c := at.state()
	below := int64(0)
	for _, p := range posts {
		if p.ID > c.Low() {
			c.Take(p.ID)
		}
		if below == 0 || p.ID < below {
			below = p.ID
		}
	}
	if !more || at.Epoch == 0 || below != 0 && below <= c.Bound()+1 {
		return c, nil
	}
	list, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.Bound(), Before: below})
	h.takeRecent(ctx, v.ID, &c, list, below)
	return c, err
}

// takeRecent has the client take the posts, which are the newest ones above the bound, newest
// first. If there are more than a cursor names, it settles the inbox: the client reads what
// lies below by itself, later than that. Below is the lowest that it has read, 0 if none.
func (h *Home) takeRecent(ctx context.Context, user int64, c *clientstate.State, list []int64, below int64) {
	for _, id := range list[:min(len(list), clientstate.MaxRecent)] {
		c.Take(id)
	}
	if len(list) <= clientstate.MaxRecent {
		return
	}
	by := settleAbove(c.Low())
	by.At = list[clientstate.MaxRecent-1]
	patient, cancel := patiently(ctx)
	defer cancel()
	visit := Visit{Position: c.Position, arrived: c.Low()}
	at, part, err := h.tl.VisitSettled(patient, user, timeline.Range{}, by)
	if err == nil && at.Epoch == c.Position.Epoch {
		list, unlisted := h.merged.mergeable(patient, user)
		h.settledAt(patient, user, &visit, part, list, unlisted)
	}
	if visit.bound == 0 || below != 0 && visit.bound >= below {
		c.Position = timeline.Position{} // nobody can tell what comes below: the client reads again
		return
	}
	c.Settle(visit.bound, visit.settled)
}

// ClientStateNow is the state of a client that has all of the viewer's timeline. It visits
// the inbox. A missing one is built first: the stream that begins would read SQL for the
// state, and again to catch up, beside the build that reads the same.
//
// Cost: as a page of the posts that are younger than the arrival grace, of at most as many as
// a cursor names; and as BuildInbox where the inbox is missing.
func (h *Home) ClientStateNow(ctx context.Context, v account.Viewer) (clientstate.State, error) {
	r := timeline.Range{After: h.ArrivedID(ctx), Limit: clientstate.MaxRecent + 1}
	at, from := h.visitInbox(ctx, v.ID, r, 0, true)
	c := at.state()
	if at.Epoch == 0 { // Redis does not answer, so the client cannot resume
		return c, nil
	}
	r.After = c.Bound()
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	h.takeRecent(ctx, v.ID, &c, rows.PostIDs(posts), 0)
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
		return c, c.Bound() <= ids.At(h.cfg.Now().Add(clockSlack)), nil
	}
	// The cursor names only an entry: the client has missed what lies above it. The
	// client reads again what lies below, some of which may still be on its way.
	c = clientstate.New(timeline.Position{}, min(after.ID, h.ArrivedID(ctx)))
	list, err := h.recentIDs(ctx, v.ID, timeline.Range{After: c.Low(), Before: after.ID + 1})
	if err != nil || len(list) > clientstate.MaxRecent {
		return c, false, err
	}
	for _, id := range list {
		c.Take(id)
	}
	return c, true, nil
}

// recentIDs returns the newest ids of a range of the user's timeline that the user
// may be shown, at most one more than a cursor names. It leaves out hidden posts
// of an inbox, because a client can read what a cursor says. A hidden post is sent
// when it is shown, as is every post that the client does not have.
//
// Cost with an inbox: as a page of all these posts, so one round trip, and a query
// when there are any. Without an inbox as a page without one.
func (h *Home) recentIDs(ctx context.Context, user int64, r timeline.Range) (ids []int64, err error) {
	var known prefetch
	list, err := h.merged.mergeable(ctx, user) // before the inbox is read: see prefetch
	if err != nil {
		return nil, err
	}
	r.Limit = clientstate.MaxRecent + 1
	found, covered, err := h.tl.Page(ctx, timeline.Inbox(user), r)
	if err == nil {
		known = prefetch{mergeable: &list, asked: r, part: timeline.Part{IDs: found, Coverage: covered}}
	}
	posts, err := visibility.Fill(ctx, visibility.Home, user, r, h.cached(h.inbox(user), known))
	return rows.PostIDs(posts), err
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

// Unknown says why nobody can tell what happened to a timeline since a client's state; "" when
// that is known.
type Unknown string

// The reasons of Unknown.
const (
	NoPosition Unknown = "no_position"      // the cursor carries no state: it was made without Redis, or by another version
	NoRedis    Unknown = "redis_away"       // Redis does not answer
	Rebuilt    Unknown = "timeline_rebuilt" // the inbox was lost, or dropped, and built anew
	Forgotten  Unknown = "journal_full"     // more was removed or came late than the journal keeps
	OutOfOrder Unknown = "out_of_order"     // a post came below more newer ones than a cursor names
)

// Missed is what happened to a timeline since a client's state.
type Missed struct {
	timeline.Since // the client's position
	// Posts, oldest first, are those above the client's bound that it may be shown and does not
	// have. More says that there may be more of them.
	Posts []*ent.Post
	More  bool
	// Arrived is an ArrivedID from before all was read, and Bound and Settled tell how the inbox
	// was settled then. Bound is 0 where that is not known.
	Arrived, Bound int64
	Settled        clientstate.Settled
}

// MissedSince reads what the client misses, the journal first. If that is unknown, nothing was
// read. It visits the inbox. Told says that the client was told of everything that came at
// or below its bound, or will be.
//
// A post that the client has can add nothing, whatever the verdict on it is now. So it is
// not read, and where an inbox has no other, SQL is not asked. It does not count as missed either:
// as many posts as an inbox holds may have come since, whatever was there before.
//
// Cost: one round trip; and as a page of the posts that the client does not have, if any. Where
// the inbox reaches down no further than to some that the client has, these are read, too.
func (h *Home) MissedSince(ctx context.Context, v account.Viewer, c *clientstate.State, told bool) (m Missed, why Unknown, err error) {
	if c.Position.Epoch == 0 {
		return Missed{}, NoPosition, nil
	}
	visit := Visit{arrived: h.ArrivedID(ctx), Position: c.Position}
	r := timeline.Range{After: c.Bound(), Limit: h.tl.InboxCap()}
	by := settleAbove(visit.arrived)
	if named, nth := c.Named(clientstate.MaxRecent); named > 2*clientstate.MaxRecent {
		by.At = nth // the inbox has few of them: the others are merged
	}
	list, unlisted := h.merged.mergeable(ctx, v.ID) // before the inbox is read: see prefetch
	since, whole, err := h.tl.VisitSince(ctx, v.ID, c.Position, r, by)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
		}
		return Missed{}, NoRedis, nil
	case !whole && since.Now.Epoch == c.Position.Epoch:
		return Missed{}, Forgotten, nil
	case !whole:
		return Missed{}, Rebuilt, nil
	}
	before, settled := c.Settled()
	came := settled && since.Part.Settled.Under != before.Under
	if settled && !came {
		digest, err := h.mergedDigest(ctx, v.ID, list, before.Low, before.High)
		came = unlisted != nil || err != nil || digest != before.Merged
	}
	if came && !told {
		return Missed{}, OutOfOrder, nil
	}
	h.settledAt(ctx, v.ID, &visit, since.Part, list, unlisted)
	if came { // a client that comes back cannot tell what it was told from what came later
		visit.settled = clientstate.Settled{Under: unsure}
	}
	m = Missed{Since: since, Arrived: visit.arrived, Bound: visit.bound, Settled: visit.settled}
	known := prefetch{mergeable: &list, asked: r, part: m.Part}
	if unlisted != nil {
		known = prefetch{}
	}
	feed := h.inbox(v.ID)
	feed.had, feed.with = c.Has, visibility.All
	source := h.cached(feed, known)
	m.Posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		b, err := source(ctx, viewer, r)
		return b.Without(c.Has), err
	})
	m.More = len(m.Posts) == r.Limit
	slices.Reverse(m.Posts)
	return m, "", err
}

// unsure is a count below the floor that no inbox has.
const unsure = 1 << 61

// mergedDigest digests what came to the outboxes that a read of the user's timeline merges, at
// or below high; 0 when it merges none. The list is what mergeable returned. It fails if an
// outbox is not ready, or if there are too many.
//
// Cost: none when nobody is merged; else as the outboxes of a page, without their ids.
func (h *Home) mergedDigest(ctx context.Context, user int64, list []int64, low, high int64) (digest uint64, err error) {
	plan, err := h.plan(ctx, user, &list, timeline.Range{After: low, Limit: math.MaxInt32})
	if err != nil || len(plan.feeds) == 0 {
		return 0, err
	}
	keys := make([]timeline.Key, len(plan.feeds))
	for i, feed := range plan.feeds {
		keys[i] = feed.key
	}
	return h.tl.Digest(ctx, keys, low, high, !plan.chosen)
}

// Changes returns the changes in the journal of the viewer's inbox since the
// position, and the present position, unless it is unknown what changed.
//
// Cost: one round trip.
func (h *Home) Changes(ctx context.Context, v account.Viewer, since timeline.Position) (changes []timeline.Change, now timeline.Position, why Unknown) {
	changes, now, whole, err := h.tl.Changes(ctx, v.ID, since)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			h.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
		}
		return nil, timeline.Position{}, NoRedis
	case whole:
		return changes, now, ""
	case now.Epoch == since.Epoch:
		return nil, now, Forgotten
	default:
		return nil, now, Rebuilt
	}
}

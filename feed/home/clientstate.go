package home

import (
	"context"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/clientstate"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// ClientStates tells which posts of its timeline a client has, and what it has missed. It is safe
// for concurrent use.
type ClientStates struct {
	reader   *Reader
	journals *timeline.Journals
	now      func() time.Time
}

// Of returns the state of a client that has the timeline from the newest of the posts
// downwards. The posts are a part of the timeline and were read after the visit. If there are
// none, the client has the whole timeline. more says whether the timeline may continue below the
// lowest post.
//
// Cost: none if the lowest post is older than the arrival grace; else the cost of recentIDs, and
// of settling the inbox again if there are more posts than a cursor names.
func (s *ClientStates) Of(ctx context.Context, v session.Viewer, at Visit, posts []*ent.Post, more bool) (clientstate.State, error) {
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
	list, err := s.recentIDs(ctx, v.ID, timeline.Range{After: c.Bound(), Before: below})
	s.takeRecent(ctx, v.ID, &c, list, below)
	return c, err
}

// takeRecent adds posts to the state. list holds the newest posts above the bound, newest first.
// If it is longer than a cursor can name, takeRecent settles the inbox below the last post that
// it adds: the client reads the posts below by itself, later. below is the lowest post that the
// client has read, 0 if it has read none.
func (s *ClientStates) takeRecent(ctx context.Context, user int64, c *clientstate.State, list []int64, below int64) {
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
	at, part, err := s.reader.visits.VisitSettled(patient, user, timeline.Range{}, by)
	if err == nil && at.Epoch == c.Position.Epoch {
		list, unlisted := s.reader.merged.mergeable(patient, user)
		s.reader.settledAt(patient, user, &visit, part, list, unlisted)
	}
	if visit.bound == 0 || below != 0 && visit.bound >= below {
		c.Position = timeline.Position{} // posts that come below cannot be detected: the client reads again
		return
	}
	c.Settle(visit.bound, visit.settled)
}

// Now returns the state of a client that has the viewer's whole timeline. It visits
// the inbox. It builds a missing inbox first: otherwise the stream that begins reads SQL for the
// state, and again to catch up, while the build reads the same posts.
//
// Cost: as a page of the posts that are younger than the arrival grace, at most as many as a
// cursor names; and as BuildInbox if the inbox is missing.
func (s *ClientStates) Now(ctx context.Context, v session.Viewer) (clientstate.State, error) {
	r := timeline.Range{After: s.reader.arrivals.ArrivedID(ctx), Limit: clientstate.MaxRecent + 1}
	at, from := s.reader.visitInbox(ctx, v.ID, r, visibility.Bare, true)
	c := at.state()
	if at.Epoch == 0 { // Redis does not answer, so the client cannot resume
		return c, nil
	}
	r.After = c.Bound()
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	s.takeRecent(ctx, v.ID, &c, rows.PostIDs(posts), 0)
	return c, err
}

// clockSlack is how far the clock of the process that made a cursor may be ahead.
const clockSlack = time.Minute

// At returns the state of a client that resumes after a cursor. ok is false if too
// much was posted since for a client state, or if the cursor is forged and lies in the future.
//
// If the cursor does not carry the state, At visits the inbox.
//
// Cost: none for a cursor that carries the state. Another cursor costs as much as Visit and recentIDs.
func (s *ClientStates) At(ctx context.Context, v session.Viewer, after paging.Cursor) (c clientstate.State, ok bool, err error) {
	if c, ok = clientstate.Decode(after.Tail); ok {
		// No server makes a state that covers posts of the future. A client that resumed from it
		// would silently miss every post until then.
		return c, c.Bound() <= ids.At(s.now().Add(clockSlack)), nil
	}
	// The cursor names only an entry: the client has missed the posts above it. The client reads
	// the posts below it again, and some of these may still be in flight.
	c = clientstate.New(timeline.Position{}, min(after.ID, s.reader.arrivals.ArrivedID(ctx)))
	s.reader.Visit(ctx, v.ID)
	list, err := s.recentIDs(ctx, v.ID, timeline.Range{After: c.Low(), Before: after.ID + 1})
	if err != nil || len(list) > clientstate.MaxRecent {
		return c, false, err
	}
	for _, id := range list {
		c.Take(id)
	}
	return c, true, nil
}

// recentIDs returns the newest ids of a range of the user's timeline, at most one more than a
// cursor names. It leaves out posts that are hidden from the user, because a client can read the
// contents of its cursor. A hidden post is sent once it is shown, like every post that the client
// does not have.
//
// Cost with an inbox: as a page of all these posts, so one round trip, and one query if there are
// any. Without an inbox: as a page without one.
func (s *ClientStates) recentIDs(ctx context.Context, user int64, r timeline.Range) (ids []int64, err error) {
	var known prefetch
	list, err := s.reader.merged.mergeable(ctx, user) // before the inbox is read: see prefetch.mergeable
	if err != nil {
		return nil, err
	}
	r.Limit = clientstate.MaxRecent + 1
	found, covered, err := s.reader.feeds.Page(ctx, timeline.Inbox(user), r)
	if err == nil {
		known = prefetch{mergeable: &list, asked: r, part: timeline.Part{IDs: found, Coverage: covered}}
	}
	inbox := s.reader.inbox(user)
	inbox.with = visibility.Bare
	posts, err := visibility.Fill(ctx, visibility.Home, user, r, s.reader.cached(inbox, known))
	return rows.PostIDs(posts), err
}

// Since reads the posts of the viewer's timeline above the id, at most as many as the inbox cap,
// with all fields that an event may show. It reads from the newest post down or, if ascending,
// from the id up. whole is false if there may be more posts. It visits the inbox.
//
// Cost: as a page of as many posts.
func (s *ClientStates) Since(ctx context.Context, v session.Viewer, id int64, ascending bool) (posts []*ent.Post, whole bool, err error) {
	r := timeline.Range{After: id, Limit: s.reader.feeds.InboxCap(), Ascending: ascending}
	_, from := s.reader.visitInbox(ctx, v.ID, r, visibility.All, false)
	bounded, stopped := visibility.Bounded(mostLookedAtOnce, from)
	posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, bounded)
	return posts, len(posts) < r.Limit && *stopped == 0, err
}

// Unknown says why it is unknown what happened to a timeline since a client's state. It is "" if
// that is known.
type Unknown string

// The reasons of Unknown.
const (
	NoPosition Unknown = "no_position"      // the cursor carries no state: it was made without Redis, or by another version
	NoRedis    Unknown = "redis_away"       // Redis does not answer
	Rebuilt    Unknown = "timeline_rebuilt" // the inbox was lost or dropped, and built anew
	Forgotten  Unknown = "journal_full"     // more posts were removed or came late than the journal keeps, or a relation changed, or what the viewer mutes
	OutOfOrder Unknown = "out_of_order"     // a post came below more newer posts than a cursor names
)

// Missed holds the changes of a timeline since a client's state.
type Missed struct {
	timeline.Since // since the client's position
	// Posts are the posts above the client's bound that the viewer may see and the client does
	// not have, oldest first. More says that there may be more of them.
	Posts []*ent.Post
	More  bool
	// Arrived is an ArrivedID from before the reads. Bound and Settled tell how the inbox was
	// settled at that time; Bound is 0 if that is unknown.
	Arrived, Bound int64
	Settled        clientstate.Settled
}

// MissedSince reads what the client missed: first the journal, then posts. It also visits the inbox, unless
// the client's state has no position. If it cannot be known what the client missed, MissedSince returns the reason and a zero Missed.
// noEventLost says that the client has received, or will receive, an event for every post that came at
// or below its bound.
//
// MissedSince does not read posts that the client already has, whether or not the viewer may still see
// them, and asks SQL only if the inbox has other posts. These posts do not count towards the limit of
// Missed.Posts, so the client may have missed as many posts as an inbox holds.
//
// Cost: one round trip; and as a page of the posts that the client does not have, if any. Below
// the floor of the inbox, posts are read from SQL even if the client has them.
func (s *ClientStates) MissedSince(ctx context.Context, v session.Viewer, c *clientstate.State, noEventLost bool) (m Missed, why Unknown, err error) {
	if c.Position.Epoch == 0 {
		return Missed{}, NoPosition, nil
	}
	visit := Visit{arrived: s.reader.arrivals.ArrivedID(ctx), Position: c.Position}
	r := timeline.Range{After: c.Bound(), Limit: s.reader.feeds.InboxCap()}
	by := settleAbove(visit.arrived)
	if named, nth := c.Named(clientstate.MaxRecent); named > 2*clientstate.MaxRecent {
		by.At = nth // few of them are in the inbox: the others come from merged outboxes
	}
	list, unlisted := s.reader.merged.mergeable(ctx, v.ID) // before the inbox is read: see prefetch
	since, whole, err := s.reader.visits.VisitSince(ctx, v.ID, c.Position, r, by)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.reader.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
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
		digest, err := s.reader.mergedDigest(ctx, v.ID, list, before.Low, before.High)
		came = unlisted != nil || err != nil || digest != before.Merged
	}
	if came && !noEventLost {
		return Missed{}, OutOfOrder, nil
	}
	s.reader.settledAt(ctx, v.ID, &visit, since.Part, list, unlisted)
	if came { // a client that resumes later cannot know which of the counted posts it was told of
		visit.settled = clientstate.Settled{Under: unsure}
	}
	m = Missed{Since: since, Arrived: visit.arrived, Bound: visit.bound, Settled: visit.settled}
	known := prefetch{mergeable: &list, asked: r, part: m.Part}
	if unlisted != nil {
		known = prefetch{}
	}
	feed := s.reader.inbox(v.ID)
	feed.had, feed.with = c.Has, visibility.All
	source := s.reader.cached(feed, known)
	bounded, stopped := visibility.Bounded(mostLookedAtOnce, func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		b, err := source(ctx, viewer, r)
		return b.Without(c.Has), err
	})
	m.Posts, err = visibility.Fill(ctx, visibility.Home, v.ID, r, bounded)
	m.More = len(m.Posts) == r.Limit || *stopped != 0
	slices.Reverse(m.Posts)
	return m, "", err
}

// unsure is a count of posts below the floor that no inbox has.
const unsure = 1 << 61

// Changes returns the changes in the journal of the viewer's inbox since the position, and the
// present end of the journal. If the changes are unknown, it returns the reason.
//
// Cost: one round trip.
func (s *ClientStates) Changes(ctx context.Context, v session.Viewer, since timeline.Position) (changes []timeline.Change, now timeline.Position, why Unknown) {
	changes, now, whole, err := s.journals.Changes(ctx, v.ID, since)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.reader.log.WarnContext(ctx, "journal not read", "viewer", v.ID, "error", err)
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

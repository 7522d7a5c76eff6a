package home

import (
	"context"
	"math"

	"tideline/feed/clientstate"
	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// Visit is the moment at which a user began to read. A client state that is made from the read
// describes this moment, however long the read takes.
type Visit struct {
	timeline.Position       // the end of the inbox's journal
	arrived           int64 // ArrivedID at that moment
	generation        int64 // of the inbox, if the read began with a page of it
	// bound is an id: settled detects every post that comes at or below it from now on. It is 0
	// if such posts cannot be detected.
	bound   int64
	settled clientstate.Settled
}

// state returns the state of a client that has not yet read anything above the bound.
func (at Visit) state() clientstate.State {
	c := clientstate.New(at.Position, at.arrived)
	c.Settle(at.bound, at.settled)
	return c
}

// Visit makes the user active. It begins to build a missing inbox, so that the journal has every
// change from before the read that follows. If Redis does not answer, the position is zero and
// the read goes on in SQL.
//
// Cost: one round trip; a second one if the inbox is missing.
func (rd *Reader) Visit(ctx context.Context, user int64) Visit {
	visit := Visit{arrived: rd.arrivals.ArrivedID(ctx)}
	at, part, err := rd.visits.VisitSettled(ctx, user, timeline.Range{}, settleAbove(visit.arrived))
	at, begun := rd.builder.visited(ctx, user, at, err)
	if begun != nil {
		rd.builder.soon(rd.inbox(user), begun)
	}
	visit.Position = at
	list, err := rd.merged.mergeable(ctx, user)
	rd.settledAt(ctx, user, &visit, part, list, err)
	return visit
}

// settleAbove asks for an inbox to be settled: its floor rises until a cursor can name all posts
// that lie above the floor and are younger than the arrival grace.
func settleAbove(arrived int64) timeline.Settle {
	return timeline.Settle{Above: arrived, Keep: clientstate.MaxRecent}
}

// settledAt records in visit how the visit settled the inbox; part is the visit's answer. Call it
// before reading the merged outboxes. list and err are the results of mergeable.
func (rd *Reader) settledAt(ctx context.Context, user int64, visit *Visit, part timeline.Part, list []int64, err error) {
	if part.Epoch != visit.Epoch || part.Settled.Floor-1 <= visit.arrived {
		return // a cursor can name every young post
	}
	how := clientstate.Settled{Under: part.Settled.Under, Low: visit.arrived, High: part.Settled.Floor - 1}
	if err == nil {
		how.Merged, err = rd.mergedDigest(ctx, user, list, how.Low, how.High)
	}
	if err != nil {
		rd.log.WarnContext(ctx, "outboxes not looked at; a cursor names what it can", "viewer", user, "error", err)
		return
	}
	visit.bound, visit.settled = part.Settled.Floor-1, how
}

// visitInbox is Visit for a page that begins with the range. It also returns the source of the
// timeline, which reads the posts with the given fields. If wait is set, a missing inbox is built
// before the read and not after it, unless that takes long.
func (rd *Reader) visitInbox(ctx context.Context, user int64, r timeline.Range, with visibility.Fields, wait bool) (Visit, visibility.Source) {
	feed, visit := rd.inbox(user), Visit{arrived: rd.arrivals.ArrivedID(ctx)}
	feed.with = with
	list, unlisted := rd.merged.mergeable(ctx, user)
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := rd.visits.VisitSettled(patient, user, r, settleAbove(visit.arrived))
	at, begun := rd.builder.visited(patient, user, at, err)
	visit.Position = at
	if err != nil {
		feed.observe(false)
		return visit, feed.truth
	}
	if begun != nil && wait && rd.builder.now(ctx, feed, begun) {
		return rd.visitInbox(ctx, user, r, with, false)
	}
	rd.settledAt(patient, user, &visit, part, list, unlisted)
	known := prefetch{begun: begun}
	if unlisted == nil {
		known.asked, known.part, known.mergeable = r, part, &list
	}
	visit.generation = part.Generation
	return visit, rd.cached(feed, known)
}

// visited returns the position of a visit to the inbox. If the inbox is missing, it begins a
// build and returns the position of the build, which the caller must pass to a builder.
func (b *builder) visited(ctx context.Context, user int64, at timeline.Position, err error) (timeline.Position, *timeline.Build) {
	if err == nil && at.Epoch == 0 {
		var build timeline.Build
		var started bool
		if build, started, err = b.feeds.Begin(ctx, timeline.Inbox(user)); started {
			return build.Position(), &build
		}
		if err == nil { // another request has just begun
			at, err = b.visits.Visit(ctx, user)
		}
	}
	if err != nil {
		b.log.WarnContext(ctx, "user not made active", "user", user, "error", err)
		return timeline.Position{}, nil
	}
	return at, nil
}

// mergedDigest returns a digest of the posts that came at or below high to the outboxes that a
// read of the user's timeline merges. It is 0 if the read merges none. list is the result of
// mergeable. mergedDigest fails if an outbox is not Ready, or if there are too many.
//
// Cost: none if no outbox is merged; else as reading the outboxes of a page, without their ids.
func (rd *Reader) mergedDigest(ctx context.Context, user int64, list []int64, low, high int64) (digest uint64, err error) {
	plan, err := rd.plan(ctx, user, &list, timeline.Range{After: low, Limit: math.MaxInt32})
	if err != nil || len(plan.feeds) == 0 {
		return 0, err
	}
	keys := rows.Map(plan.feeds, func(feed cachedFeed) timeline.Key { return feed.key })
	return rd.feeds.Digest(ctx, keys, low, high, !plan.selected)
}

package home

import (
	"context"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
)

// Order is the order of a timeline.
type Order string

const (
	// Latest is newest first.
	Latest Order = "LATEST"
	// Ranked orders posts by their scores in a ranking, highest first.
	Ranked Order = "RANKED"
)

// Timeline returns a page of the viewer's home timeline: own posts, and posts of the users that
// the viewer follows and has not muted. It reads the viewer's inbox, and continues in SQL below
// it. It makes the viewer active: from now on new posts are pushed. Errors: Unauthenticated,
// BadInput.
//
// Cost with an inbox: one round trip to Redis, of O(log cap + page), and one query of the page's
// posts. In addition:
//
//   - If posts older than the page may be younger than two minutes: a round trip, and a query of
//     all these posts, if there are any.
//   - For a run of hidden posts in the inbox: a query of twice as many posts. Below the inbox, posts of
//     a hidden visibility are not read; a run of replies and reposts that the viewer may not see is, up
//     to mostLooked posts. The page is then shorter than requested, or empty, and the list continues.
//   - If there are merged authors: a query that tells which of them the viewer follows. Their
//     outboxes are read in the same round trip. If there are more than Policy.MergeAll, their
//     latest post ids are read before it.
//
// Cost without an inbox: two queries, with a look-up for each followee, which do not read hidden
// posts; two more, of twice as many followees, if so many have only hidden posts near the page;
// and a round trip that puts posts into the inbox that may not have arrived there.
//
// Cost if no author is pushed: a query of the list of followees, their latest post ids, and the
// outboxes that reach the page.
//
// A ranked page costs as much as a page of all posts of an inbox; after a cursor, at most twice
// that.
func (h *Home) Timeline(ctx context.Context, v session.Viewer, p paging.Page, order Order) (*paging.Connection[ent.Post], error) {
	return h.TimelineWith(ctx, v, p, order, "", visibility.Likes)
}

// TimelineWith is Timeline with two more choices. rank is the name of a ranking in Rankings, for
// the order Ranked only; "" is ranking.Hot. It costs as much as Ranking.Scores. with selects the
// fields of posts that are read by their ids. Posts that SQL lists, and posts of a ranked page,
// do not have them. The fields cost one more look-up by primary key for each author.
func (h *Home) TimelineWith(ctx context.Context, v session.Viewer, p paging.Page, order Order, rank string, with visibility.Fields) (*paging.Connection[ent.Post], error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if order == Ranked {
		return h.ranked(ctx, v, p, rank)
	}
	if rank != "" {
		return nil, refusal.New(refusal.NotRanked, "A ranking goes with the order RANKED.").In("ranking")
	}
	w, err := paging.Open(p, paging.Latest, v.ID, h.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	at, from := h.Reader.visitInbox(ctx, v.ID, r, with, false)
	bounded, stopped := visibility.Bounded(mostLooked, from)
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, bounded)
	if err != nil {
		return nil, err
	}
	state, err := h.Clients.Of(ctx, v, at, posts, w.Backwards || len(posts) > w.N || *stopped != 0)
	if err != nil {
		return nil, err
	}
	c := paging.Connect(w, posts, func(p *ent.Post) paging.Edge[ent.Post] {
		upTo := state.UpTo(p.ID)
		return upTo.Entry(v, p)
	})
	c.Stopped(w, *stopped, paging.Latest, v.ID)
	if c.Position = state.Holding(v, w, c); *stopped != 0 && len(posts) == 0 && w.After == nil && w.Before == nil {
		c.Position = state.Cursor(v, *stopped) // the timeline is not empty: the client has all of it down to there
	}
	return c, nil
}

// Entry returns the post as an entry of the viewer's timeline in the order Latest. Its cursor is
// for a client that has the timeline from this post downwards.
func (h *Home) Entry(ctx context.Context, v session.Viewer, p *ent.Post) (paging.Edge[ent.Post], error) {
	at := h.Reader.Visit(ctx, v.ID)
	state, err := h.Clients.Of(ctx, v, at, []*ent.Post{p}, true)
	state = state.UpTo(p.ID)
	return state.Entry(v, p), err
}

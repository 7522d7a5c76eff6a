package feed

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/readmarker"
)

// Order is what a timeline is ordered by.
type Order string

const (
	// Latest is newest first.
	Latest Order = "LATEST"
	// Ranked is by weight, highest first.
	Ranked Order = "RANKED"
)

// Timeline is a page of the viewer's home timeline: own posts and those of the
// users the viewer follows and has not muted. It reads the viewer's inbox, goes
// on in SQL below it, and makes the viewer active: from now on new posts are
// pushed. Errors: Unauthenticated, BadInput.
//
// Cost with an inbox: one round trip to Redis, of O(log cap + page), and one query of
// the page's posts; one more round trip where posts older than the page may be younger
// than two minutes, and one more query, of all of these, where there are any. A run of
// hidden posts in the inbox costs a query more, of twice as many; below the inbox they
// are not read. Where there are authors whose posts are not pushed, a query tells
// those of them whom the viewer follows; their outboxes are read in the same round
// trip, and if there are more than Config.MergeAll, their newest ids are asked for
// before it. Without an inbox: two queries, with a look-up for each followee, and not
// of hidden posts; two more, of twice as many followees, where so many have nothing
// but hidden ones near the page. Where nobody is pushed to: a query of the list of
// followees, their newest ids, and the outboxes that reach the page.
// A ranked page costs as much as a page of all that an inbox holds, one after a
// cursor at most as of twice that.
func (f *Feed) Timeline(ctx context.Context, v Viewer, p Page, order Order) (*Connection[ent.Post], error) {
	if v.ID == 0 {
		return nil, errSignIn
	}
	if order == Ranked {
		f.visit(ctx, v.ID)
		return f.ranked(ctx, v, p)
	}
	w, err := f.open(p, listLatest, v.ID)
	if err != nil {
		return nil, err
	}
	at, from := f.visitInbox(ctx, v.ID, w.span().first(w.n+1))
	rows, err := f.fill(ctx, HomeTimeline, v.ID, w.n+1, w.span(), from)
	if err != nil {
		return nil, err
	}
	held, err := f.clientStateOf(ctx, v, at, rows, w.backwards || len(rows) > w.n)
	if err != nil {
		return nil, err
	}
	return connect(w, rows, func(p *ent.Post) Edge[ent.Post] { return f.entry(v, p, held.upTo(p.ID)) }), nil
}

// UnreadCount is how many entries of the viewer's timeline, among the newest
// that an inbox holds, are newer than the read marker; own posts do not count.
// It is 0 for an anonymous viewer.
//
// Cost: two queries, of as many posts as are unread, at most an inbox's.
func (f *Feed) UnreadCount(ctx context.Context, v Viewer) (int, error) {
	if v.ID == 0 {
		return 0, nil
	}
	marker, err := f.db.ReadMarker.Get(ctx, v.ID)
	if ent.IsNotFound(err) {
		marker, err = &ent.ReadMarker{}, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read marker: %w", err)
	}
	posts, err := f.fill(ctx, HomeTimeline, v.ID, f.cfg.InboxCap, span{low: marker.PostID}, f.cached(f.inbox(v.ID)))
	if err != nil {
		return 0, err
	}
	unread := 0
	for _, p := range posts {
		if p.AuthorID != v.ID {
			unread++
		}
	}
	return unread, nil
}

// MarkRead moves the viewer's read marker forwards to the entry of the cursor,
// never backwards, and returns what is unread then. Errors: Unauthenticated,
// BadInput.
//
// Cost: two statements, a message to the user's connections, and UnreadCount.
func (f *Feed) MarkRead(ctx context.Context, v Viewer, upTo string) (int, error) {
	if v.ID == 0 {
		return 0, errSignIn
	}
	c, err := decodeCursor(upTo, listLatest, v.ID)
	if err != nil {
		if c, err = decodeCursor(upTo, listRanked, v.ID); err != nil {
			return 0, err
		}
	}
	err = f.db.ReadMarker.Create().SetID(v.ID).SetPostID(0).
		OnConflictColumns(readmarker.FieldID).Ignore().Exec(ctx)
	if err != nil {
		return 0, fmt.Errorf("create read marker: %w", err)
	}
	moved, err := f.db.ReadMarker.Update().Where(readmarker.ID(v.ID), readmarker.PostIDLT(c.id)).SetPostID(c.id).Save(ctx)
	if err != nil {
		return 0, fmt.Errorf("move read marker: %w", err)
	}
	if moved > 0 {
		f.announceMarker(ctx, v)
	}
	return f.UnreadCount(ctx, v)
}

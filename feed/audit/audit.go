// Package audit lets operators compare derived data with its source: home timelines in Redis with
// SQL, counters with the rows that they count, and one ranking of a timeline with another. It can
// rebuild wrong data. Its reads do not count as reads of a user, and make no user active.
package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// Audit examines home timelines for operators. It is safe for concurrent use.
type Audit struct {
	home  *home.Home
	db    *ent.Client
	tl    *timeline.Store
	posts *visibility.Reader
	now   func() time.Time
}

// New returns the Audit of the home timelines. It reads the stores of their Config.
func New(h *home.Home) *Audit {
	cfg := h.Config()
	return &Audit{h, cfg.DB, cfg.Timelines, cfg.Visibility, cfg.Now}
}

// Inspection describes a user's home timeline.
type Inspection struct {
	User      *ent.User
	Active    bool           // posts are pushed to the user
	State     timeline.State // of the inbox
	Epoch     int64          // changes whenever the inbox is built anew
	Entries   int            // in the inbox
	Newest    int64          // newest post in the inbox, 0 if it is empty
	Floor     int64          // the inbox is complete down to this post; 0: to the beginning
	Followees int
	Merged    []int64 // followees whose outbox is merged at every read
	AllMerged bool    // reads merge the outboxes of all followees and use no inbox; Merged is nil
}

// Inspect describes a user's home timeline without reading it, because a read makes the user
// active. Error: NotFound.
//
// Cost: three round trips, and at most three queries by index.
func (a *Audit) Inspect(ctx context.Context, userID int64) (*Inspection, error) {
	u, err := a.db.User.Get(ctx, userID)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	active, err := a.tl.Active.Check(ctx, []int64{userID})
	if err != nil {
		return nil, err
	}
	ids, covered, err := a.tl.Feeds.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * a.tl.Feeds.InboxCap()})
	if err != nil {
		return nil, err
	}
	in := &Inspection{
		User: u, Active: active[0], State: covered.State, Epoch: covered.Epoch,
		Entries: len(ids), Floor: covered.Floor, Followees: u.FollowingCount,
	}
	if len(ids) > 0 {
		in.Newest = ids[0]
	}
	merged, listed, err := a.home.Reader.MergedFollowees(ctx, userID)
	in.Merged, in.AllMerged = merged, !listed
	return in, err
}

// Rebuild rebuilds the user's inbox from SQL and reports whether it did. Nothing is pushed to a
// user who is away: Rebuild then only drops an inbox that may be left.
//
// Cost: as BuildInbox.
func (a *Audit) Rebuild(ctx context.Context, userID int64) (built bool, err error) {
	active, err := a.tl.Active.Check(ctx, []int64{userID})
	if err != nil {
		return false, err
	}
	if err := a.tl.Feeds.Drop(ctx, timeline.Inbox(userID)); err != nil || !active[0] {
		return false, err
	}
	return true, a.home.Reader.BuildInbox(ctx, userID)
}

// RebuildOutbox rebuilds the user's outbox and latest post id from SQL.
//
// Cost: at most two queries of as many posts as an outbox holds, and four round trips.
func (a *Audit) RebuildOutbox(ctx context.Context, userID int64) error {
	if err := a.tl.Feeds.Drop(ctx, timeline.Outbox(userID)); err != nil {
		return err
	}
	if err := a.home.Reader.BuildOutbox(ctx, userID); err != nil {
		return err
	}
	known, err := a.tl.Latest.IDs(ctx, []int64{userID})
	if err != nil {
		return err
	}
	newest, err := a.written(ctx, userID, timeline.Range{Limit: 1})
	if err != nil || len(newest) == 0 {
		return err
	}
	return a.tl.Latest.Store(ctx, known, map[int64]int64{userID: newest[0].ID})
}

// Difference lists the differences between a feed in Redis and SQL.
type Difference struct {
	Checked int     // posts in SQL, in the compared range
	Missing []int64 // posts that a read would not show
	Extra   []int64 // ids in the feed that no read shows
}

// Verify compares a user's timeline in Redis with SQL, down to the inbox's floor. It reads at most
// twice as many posts as an inbox holds. If merged authors fill this range, older posts do not
// count as missing. Posts that are younger than grace, or were hidden since, do not count either,
// because they may still be in flight. Without an inbox there is no difference, because SQL serves
// the reads.
//
// Cost: the inbox, and as a first page without an inbox, of twice as many posts as it holds; if
// there is an extra id, one query by key.
func (a *Audit) Verify(ctx context.Context, userID int64, grace time.Duration) (Difference, error) {
	held, covered, err := a.tl.Feeds.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * a.tl.Feeds.InboxCap()})
	if err != nil || covered.State != timeline.Ready {
		return Difference{}, err
	}
	reach := timeline.Range{After: max(covered.Floor-1, 0), Limit: 2 * a.tl.Feeds.InboxCap()}
	inSQL, asRead := a.home.Reader.Unseen(userID)
	truth, err := visibility.Fill(ctx, visibility.Inbox, userID, reach, inSQL)
	if err != nil {
		return Difference{}, err
	}
	read, err := visibility.Fill(ctx, visibility.Inbox, userID, reach, asRead)
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Checked: len(truth)}
	low := int64(0) // posts written between the two reads push older ones out of the second
	if len(read) == reach.Limit {
		low = read[reach.Limit-1].ID
	}
	arrived := ids.At(a.now().Add(-grace))
	for _, id := range rows.Without(rows.PostIDs(truth), rows.PostIDs(read)) {
		if low < id && id < arrived {
			d.Missing = append(d.Missing, id)
		}
	}
	d.Extra, err = a.unshowable(ctx, visibility.Inbox, userID, rows.Without(held, rows.PostIDs(truth)))
	return d, err
}

// VerifyOutbox compares the user's outbox in Redis with SQL, down to its floor, and also the latest
// post id: a post above that id is missing from pages that check it first. Posts that are younger
// than grace do not count. Data that Redis does not have comes from SQL, and is no difference.
//
// Cost: the outbox, two round trips, and a query of as many posts as it holds; if there is an extra
// id, one query by key.
func (a *Audit) VerifyOutbox(ctx context.Context, userID int64, grace time.Duration) (d Difference, err error) {
	reach := timeline.Range{Limit: 2 * a.tl.Feeds.OutboxCap()}
	held, covered, err := a.tl.Feeds.Page(ctx, timeline.Outbox(userID), reach)
	if err != nil {
		return d, err
	}
	known, err := a.tl.Latest.IDs(ctx, []int64{userID})
	if err != nil {
		return d, err
	}
	latest := known.IDs[0]
	reach.After = max(covered.Floor-1, 0)
	if covered.State != timeline.Ready {
		if latest < 0 {
			return d, nil
		}
		reach.Limit = 1
	}
	posts, err := a.written(ctx, userID, reach)
	if err != nil {
		return d, err
	}
	truth, arrived := rows.PostIDs(posts), ids.At(a.now().Add(-grace))
	d.Checked = len(truth)
	for _, id := range truth {
		lost := covered.State == timeline.Ready && !slices.Contains(held, id)
		if id < arrived && (lost || latest >= 0 && id > latest) {
			d.Missing = append(d.Missing, id)
		}
	}
	d.Extra, err = a.unshowable(ctx, visibility.Inbox, userID, rows.Without(held, truth))
	return d, err
}

// written reads the user's own posts from SQL, all of which belong into an outbox.
func (a *Audit) written(ctx context.Context, userID int64, r timeline.Range) ([]*ent.Post, error) {
	return visibility.Fill(ctx, visibility.Inbox, userID, r, a.posts.AllBy(userID))
}

// unshowable returns the ids of posts that the user may not be shown on the surface, or nil if
// there are none.
func (a *Audit) unshowable(ctx context.Context, on visibility.Surface, userID int64, posts []int64) (hidden []int64, err error) {
	visible, err := a.posts.Posts(ctx, on, userID, posts, 0)
	for i, p := range visible {
		if p == nil {
			hidden = append(hidden, posts[i])
		}
	}
	return hidden, err
}

// Explain says in a sentence why a post is, or is not, in the viewer's home timeline. It names the
// rule that hides the post: a rule about the post itself, about the root of its conversation, about
// the original of a repost, or the viewer's HomeReplies.
//
// Cost: some look-ups by index, and a round trip.
func (a *Audit) Explain(ctx context.Context, viewer, post int64) (string, error) {
	author, why, err := a.posts.WhyHidden(ctx, viewer, post)
	if err != nil {
		return "", err
	}
	if why != "" {
		return "It is not shown: " + why + ".", nil
	}
	return a.explainShown(ctx, viewer, author, post)
}

func (a *Audit) explainShown(ctx context.Context, viewer, author, post int64) (string, error) {
	merged, listed, err := a.home.Reader.MergedFollowees(ctx, viewer) // before the inbox is read: a later list may lack the author while the inbox does not have the post yet
	if err != nil {
		return "", err
	}
	if !listed {
		return a.explainMerged(ctx, author, post, "nobody's posts are pushed")
	}
	found, covered, err := a.tl.Feeds.Page(ctx, timeline.Inbox(viewer), timeline.Range{Before: post + 1, After: post - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	switch {
	case covered.State != timeline.Ready:
		return "It is shown: the viewer has no inbox (away, or Redis lost it), so reads come from SQL, which has it.", nil
	case slices.Contains(found, post):
		return "It is shown: it is in the viewer's inbox.", nil
	case post < covered.Floor:
		return "It is shown: it is older than the viewer's inbox reaches, and below that reads come from SQL.", nil
	case slices.Contains(merged, author):
		return a.explainMerged(ctx, author, post, "the author has too many followers to push to")
	}
	return "It ought to be shown and is not: the viewer's inbox lacks it, because its fan-out is not done or an entry was lost; then `tideline feeds verify VIEWER --repair` mends it.", nil
}

func (a *Audit) explainMerged(ctx context.Context, author, post int64, why string) (string, error) {
	found, covered, err := a.tl.Feeds.Page(ctx, timeline.Outbox(author), timeline.Range{Before: post + 1, After: post - 1, Limit: 1})
	if covered.State == timeline.Ready && post >= covered.Floor && !slices.Contains(found, post) {
		return "It ought to be shown and is not: " + why + ", so reads merge the author's outbox, which lacks it; `tideline feeds verify AUTHOR --repair` mends it.", err
	}
	return "It is shown: " + why + ", so reads merge the author's outbox.", err
}

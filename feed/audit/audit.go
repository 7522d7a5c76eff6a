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
	Floor     int64          // the inbox is complete down to this post id; 0: down to the oldest post
	Followees int
	Merged    []int64 // followees whose outboxes every read merges
	AllMerged bool    // reads merge the outboxes of all followees and use no inbox; Merged is nil
}

// Inspect describes a user's home timeline without reading it, because a read makes the user
// active. Error: NotFound.
//
// Cost: two round trips to Redis, a look-up of the user, and Reader.MergedFollowees.
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
	ids, coverage, err := a.tl.Feeds.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * a.tl.Feeds.InboxCap()})
	if err != nil {
		return nil, err
	}
	in := &Inspection{
		User: u, Active: active[0], State: coverage.State, Epoch: coverage.Epoch,
		Entries: len(ids), Floor: coverage.Floor, Followees: u.FollowingCount,
	}
	if len(ids) > 0 {
		in.Newest = ids[0]
	}
	merged, listed, err := a.home.Reader.MergedFollowees(ctx, userID)
	in.Merged, in.AllMerged = merged, !listed
	return in, err
}

// Rebuild drops the user's inbox and, if the user is active, builds it from SQL again. active is false
// for a user who is away: nothing is pushed to such a user, so there is no inbox to build. If a
// reader has begun to build the inbox in the meantime, Rebuild leaves the build to that reader.
//
// Cost: two round trips to Redis. For an active user also Reader.BuildInbox.
func (a *Audit) Rebuild(ctx context.Context, userID int64) (active bool, err error) {
	checked, err := a.tl.Active.Check(ctx, []int64{userID})
	if err != nil {
		return false, err
	}
	if err := a.tl.Feeds.Drop(ctx, timeline.Inbox(userID)); err != nil || !checked[0] {
		return false, err
	}
	if err := a.home.Reader.BuildInbox(ctx, userID); err != nil {
		return false, err
	}
	return true, nil
}

// RebuildOutbox drops the user's outbox and builds it from SQL again. It also raises the user's latest
// post id in Redis to the newest post in SQL. It does not lower a larger id, which is still correct as
// an upper bound.
//
// Cost: Reader.BuildOutbox, a query of one post, and three more round trips to Redis.
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
	newest, err := a.postsBy(ctx, userID, timeline.Range{Limit: 1})
	if err != nil || len(newest) == 0 {
		return err
	}
	return a.tl.Latest.Store(ctx, known, map[int64]int64{userID: newest[0].ID})
}

// Difference lists the differences between a feed in Redis and SQL.
type Difference struct {
	Checked int     // number of posts in SQL that were compared
	Missing []int64 // posts in SQL that readers of the feed do not get
	Extra   []int64 // ids in the feed of posts that the user may not be shown: they are hidden or deleted
}

// Verify compares a user's timeline in Redis with SQL, down to the inbox's floor. It compares at most
// twice as many posts as an inbox holds. Merged authors may have more posts above the floor; then the
// oldest posts are not compared. Posts younger than grace do not count as missing, because they may
// still be in flight. A post that was just hidden or deleted may count as a difference until its job
// is done. Without an inbox there is no difference, because reads come from SQL.
//
// Cost: a read of the inbox. In addition two reads of twice as many posts as an inbox holds: a page,
// and a first page without an inbox. If ids of the inbox are not among these posts, one query by
// primary key.
func (a *Audit) Verify(ctx context.Context, userID int64, grace time.Duration) (Difference, error) {
	inbox, coverage, err := a.tl.Feeds.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * a.tl.Feeds.InboxCap()})
	if err != nil || coverage.State != timeline.Ready {
		return Difference{}, err
	}
	compared := timeline.Range{After: max(coverage.Floor-1, 0), Limit: 2 * a.tl.Feeds.InboxCap()}
	sqlSource, readerSource := a.home.Reader.Unseen(userID)
	inSQL, err := visibility.Fill(ctx, visibility.Inbox, userID, compared, sqlSource)
	if err != nil {
		return Difference{}, err
	}
	read, err := visibility.Fill(ctx, visibility.Inbox, userID, compared, readerSource)
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Checked: len(inSQL)}
	// Posts that are written between the two reads push older posts out of the second.
	oldest := int64(0)
	if len(read) == compared.Limit {
		oldest = read[compared.Limit-1].ID
	}
	arrived := ids.At(a.now().Add(-grace))
	for _, id := range rows.Without(rows.PostIDs(inSQL), rows.PostIDs(read)) {
		if oldest < id && id < arrived {
			d.Missing = append(d.Missing, id)
		}
	}
	d.Extra, err = a.unshowable(ctx, visibility.Inbox, userID, rows.Without(inbox, rows.PostIDs(inSQL)))
	return d, err
}

// VerifyOutbox compares the user's outbox in Redis with SQL, down to the outbox's floor. It also
// compares the latest post id in Redis with SQL: a reader who merges many outboxes skips those whose
// latest id is below the page, so a post above that id counts as missing. Posts younger than grace do
// not count as missing. If Redis has no outbox or no latest id, that is no difference, because
// readers then use SQL.
//
// Cost: two round trips to Redis, one of which reads the outbox, and a query of at most twice as many
// posts as an outbox holds. If ids of the outbox are not among these posts, one query by primary key.
func (a *Audit) VerifyOutbox(ctx context.Context, userID int64, grace time.Duration) (d Difference, err error) {
	compared := timeline.Range{Limit: 2 * a.tl.Feeds.OutboxCap()}
	outbox, coverage, err := a.tl.Feeds.Page(ctx, timeline.Outbox(userID), compared)
	if err != nil {
		return d, err
	}
	known, err := a.tl.Latest.IDs(ctx, []int64{userID})
	if err != nil {
		return d, err
	}
	latest := known.IDs[0]
	compared.After = max(coverage.Floor-1, 0)
	if coverage.State != timeline.Ready {
		if latest < 0 {
			return d, nil // Redis has neither the outbox nor the latest id
		}
		compared.Limit = 1 // only the newest post, for the latest id
	}
	posts, err := a.postsBy(ctx, userID, compared)
	if err != nil {
		return d, err
	}
	inSQL, arrived := rows.PostIDs(posts), ids.At(a.now().Add(-grace))
	d.Checked = len(inSQL)
	for _, id := range inSQL {
		notInOutbox := coverage.State == timeline.Ready && !slices.Contains(outbox, id)
		aboveLatest := latest >= 0 && id > latest // a negative latest id is unknown
		if id < arrived && (notInOutbox || aboveLatest) {
			d.Missing = append(d.Missing, id)
		}
	}
	d.Extra, err = a.unshowable(ctx, visibility.Inbox, userID, rows.Without(outbox, inSQL))
	return d, err
}

// postsBy reads posts of the user from SQL. An outbox has all posts, whatever their visibility.
func (a *Audit) postsBy(ctx context.Context, userID int64, r timeline.Range) ([]*ent.Post, error) {
	return visibility.Fill(ctx, visibility.Inbox, userID, r, a.posts.AllBy(userID))
}

// unshowable returns the posts that the server may not show to the user on the surface, including deleted
// posts. It returns nil if there are none.
func (a *Audit) unshowable(ctx context.Context, on visibility.Surface, userID int64, posts []int64) (hidden []int64, err error) {
	visible, err := a.posts.Posts(ctx, on, userID, posts, 0)
	for i, p := range visible {
		if p == nil {
			hidden = append(hidden, posts[i])
		}
	}
	return hidden, err
}

// Explain says in a sentence why the viewer's home timeline shows a post, or why it does not. It names
// the rule that hides the post: a rule about the post itself, about the root of its conversation, about
// the original of a repost, or the viewer's HomeReplies.
//
// Cost: one query by primary key. If no rule hides the post, also Reader.MergedFollowees and at most
// two round trips to Redis.
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

// explainShown explains from which place reads get a post that no rule hides.
func (a *Audit) explainShown(ctx context.Context, viewer, author, post int64) (string, error) {
	// The list is read before the inbox. A later list may lack an author who has just left it, while
	// the author's last posts are not in the inbox yet.
	merged, listed, err := a.home.Reader.MergedFollowees(ctx, viewer)
	if err != nil {
		return "", err
	}
	if !listed {
		return a.explainMerged(ctx, author, post, "this server pushes no posts to inboxes")
	}
	found, coverage, err := a.tl.Feeds.Page(ctx, timeline.Inbox(viewer), timeline.Range{Before: post + 1, After: post - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	switch {
	case coverage.State != timeline.Ready:
		return "It is shown: the viewer has no inbox, because the viewer was away or Redis lost the inbox. Reads come from SQL, which has the post.", nil
	case slices.Contains(found, post):
		return "It is shown: it is in the viewer's inbox.", nil
	case post < coverage.Floor:
		return "It is shown: it is older than all posts in the viewer's inbox. Older posts come from SQL.", nil
	case slices.Contains(merged, author):
		return a.explainMerged(ctx, author, post, "the author has so many followers that posts are not pushed to them")
	}
	return "It ought to be shown and is not: the viewer's inbox lacks the post. Either the fan-out of the post is not done, or the entry was lost. `tideline feeds verify VIEWER --repair` restores a lost entry.", nil
}

// explainMerged explains a post that reads get from its author's outbox. why is the reason that it is
// not pushed to inboxes, as a clause.
func (a *Audit) explainMerged(ctx context.Context, author, post int64, why string) (string, error) {
	found, coverage, err := a.tl.Feeds.Page(ctx, timeline.Outbox(author), timeline.Range{Before: post + 1, After: post - 1, Limit: 1})
	if coverage.State == timeline.Ready && post >= coverage.Floor && !slices.Contains(found, post) {
		return "It ought to be shown and is not: " + why + ", so reads merge the author's outbox, and the outbox lacks the post. `tideline feeds verify AUTHOR --repair` restores it.", err
	}
	return "It is shown: " + why + ", so reads merge the author's outbox.", err
}

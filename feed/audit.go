package feed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/timeline"
)

// Inspection is what is known of a user's home timeline.
type Inspection struct {
	User      *ent.User
	Active    bool           // posts are pushed to the user
	State     timeline.State // of the inbox
	Epoch     int64          // changes whenever the inbox is built anew
	Entries   int            // in the inbox
	Newest    int64          // its newest post, 0 when it is empty
	Floor     int64          // it is complete down to this post, 0: to the beginning
	Followees int
	Merged    []int64 // followees whose outbox is merged at every read
	AllMerged bool    // reads merge all followees' outboxes, without the inbox; Merged is nil
}

// Inspect looks at a user's home timeline without reading it, which would make
// the user active. Error: NotFound.
//
// Cost: three round trips, and three queries by index at most.
func (f *Feed) Inspect(ctx context.Context, userID int64) (*Inspection, error) {
	u, err := f.db.User.Get(ctx, userID)
	if ent.IsNotFound(err) {
		return nil, errNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	active, err := f.tl.Active(ctx, []int64{userID})
	if err != nil {
		return nil, err
	}
	ids, covered, err := f.tl.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * f.cfg.InboxCap})
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
	merged, listed, err := f.mergedFollowees(ctx, userID)
	in.Merged, in.AllMerged = merged, !listed
	return in, err
}

// Rebuild makes the user's inbox anew from SQL and reports whether it did: of a
// user who is away, to whom nothing is pushed, it drops what may be left.
//
// Cost: as BuildInbox.
func (f *Feed) Rebuild(ctx context.Context, userID int64) (built bool, err error) {
	active, err := f.tl.Active(ctx, []int64{userID})
	if err != nil {
		return false, err
	}
	if err := f.tl.Drop(ctx, timeline.Inbox(userID)); err != nil || !active[0] {
		return false, err
	}
	return true, f.BuildInbox(ctx, userID)
}

// Difference is where a user's timeline in Redis and the truth in SQL disagree.
type Difference struct {
	Checked int     // entries that SQL says the inbox's range has, as far as compared
	Missing []int64 // posts that a read would not show
	Extra   []int64 // ids in the inbox that no read shows
}

// Verify compares a user's timeline in Redis with SQL, as far down as the inbox
// is complete. Of the timeline it reads twice as many posts as an inbox holds;
// where merged authors fill these, what is older does not count as missing. Nor do
// posts younger than grace, or hidden since, which may still be on their way.
// Without an inbox there is nothing to disagree, as SQL serves the reads.
//
// Cost: the inbox, and as a first page without one, of twice as many posts as it
// holds; when it has something else, a query of that by key.
func (f *Feed) Verify(ctx context.Context, userID int64, grace time.Duration) (Difference, error) {
	ids, covered, err := f.tl.Page(ctx, timeline.Inbox(userID), timeline.Range{Limit: 2 * f.cfg.InboxCap})
	if err != nil || covered.State != timeline.Ready {
		return Difference{}, err
	}
	reach := span{low: max(covered.Floor-1, 0)}
	limit := 2 * f.cfg.InboxCap
	truth, err := f.fill(ctx, HomeTimeline, userID, limit, reach, f.pulled(userID))
	if err != nil {
		return Difference{}, err
	}
	// The same reads as a user's, but nobody counts them.
	silent := &Feed{cfg: f.cfg, db: f.db, dialect: f.dialect, tl: f.tl, log: f.log, builds: f.builds}
	silent.cfg.Observe = func(bool) {}
	read, err := f.fill(ctx, HomeTimeline, userID, limit, reach, silent.cached(f.inbox(userID)))
	if err != nil {
		return Difference{}, err
	}
	d := Difference{Checked: len(truth)}
	low := int64(0) // what was posted between the two reads pushes others out of the second
	if len(read) == limit {
		low = read[limit-1].ID
	}
	settled := IDAt(f.now().Add(-grace))
	for _, id := range without(idsOf(truth), idsOf(read)) {
		if low < id && id < settled {
			d.Missing = append(d.Missing, id)
		}
	}
	d.Extra, err = f.unshowable(ctx, userID, without(ids, idsOf(truth)))
	return d, err
}

// unshowable is those of the ids that are of no post which the user may be shown
// in the timeline; nil when there are none.
func (f *Feed) unshowable(ctx context.Context, userID int64, ids []int64) ([]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := f.posts(userID).Where(f.among(post.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	visible, err := shown(HomeTimeline, userID, rows)
	if err != nil || len(visible) == len(ids) {
		return nil, err
	}
	return without(ids, idsOf(visible)), nil
}

// UserIDsAfter is up to n users after the given one, in the order of their ids: the
// way to go through all users in steps.
//
// Cost: an index range of n.
func (f *Feed) UserIDsAfter(ctx context.Context, after int64, n int) ([]int64, error) {
	ids, err := f.db.User.Query().Where(user.IDGT(after)).Order(ent.Asc(user.FieldID)).Limit(n).IDs(ctx)
	return ids, wrap("list users", err)
}

// CountUsers is how many users there are.
//
// Cost: a count of all users: for operators, not for requests.
func (f *Feed) CountUsers(ctx context.Context) (int, error) {
	n, err := f.db.User.Query().Count(ctx)
	return n, wrap("count users", err)
}

// Explain says in one sentence why a post is or is not in the viewer's home
// timeline.
//
// Cost: some look-ups by index, and a round trip.
func (f *Feed) Explain(ctx context.Context, viewer, postID int64) (string, error) {
	p, err := f.db.Post.Get(ctx, postID)
	if ent.IsNotFound(err) {
		return "It is not shown: there is no such post, or it was deleted.", nil
	}
	if err != nil {
		return "", fmt.Errorf("read post: %w", err)
	}
	r, err := f.relation(ctx, viewer, p.AuthorID)
	if err != nil {
		return "", err
	}
	if !mayShow(HomeTimeline, viewer, r, p) {
		return "It is not shown: " + whyNot(r, p) + ".", nil
	}
	return f.explainShown(ctx, viewer, p)
}

// whyNot names the rule by which mayShow hides a post from a timeline.
func whyNot(r Relation, p *ent.Post) string {
	switch {
	case r.Blocking:
		return "the viewer blocks the author"
	case r.BlockedBy:
		return "the author blocks the viewer"
	case !r.Following:
		return "the viewer does not follow the author"
	case r.Muting:
		return "the viewer mutes the author"
	case p.Visibility == schema.Mutuals:
		return "it is for friends, and the author does not follow the viewer"
	default:
		return "it is for the author alone"
	}
}

func (f *Feed) explainShown(ctx context.Context, viewer int64, p *ent.Post) (string, error) {
	merged, listed, err := f.mergedFollowees(ctx, viewer) // before the inbox is read: see companyOf
	if err != nil {
		return "", err
	}
	if !listed {
		return "It is shown: nobody's posts are pushed, or too many authors' are not, so reads merge the outboxes of everybody whom the viewer follows.", nil
	}
	ids, covered, err := f.tl.Page(ctx, timeline.Inbox(viewer), timeline.Range{Before: p.ID + 1, After: p.ID - 1, Limit: 1})
	if err != nil {
		return "", err
	}
	switch {
	case covered.State != timeline.Ready:
		return "It is shown: the viewer has no inbox (away, or Redis lost it), so reads come from SQL, which has it.", nil
	case slices.Contains(ids, p.ID):
		return "It is shown: it is in the viewer's inbox.", nil
	case p.ID < covered.Floor:
		return "It is shown: it is older than the viewer's inbox reaches, and below that reads come from SQL.", nil
	case slices.Contains(merged, p.AuthorID):
		return "It is shown: the author has too many followers to push to, so reads merge the author's outbox.", nil
	}
	return "It ought to be shown and is not: the inbox that should hold it does not, because its fan-out is not done or an entry was lost; `tideline feeds rebuild` mends it.", nil
}

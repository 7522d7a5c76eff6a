package home

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/feed/internal/rows"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/lru"
	"tideline/live"
	"tideline/timeline"
)

const (
	// keptBytes bounds the memory of the kept posts: 65,536 users with 30 unread posts each.
	keptBytes = 24 << 20
	// keptOverhead is the memory that a user takes in addition to 8 bytes for each id.
	keptOverhead = 144
)

// Unread counts unread posts. It keeps the unread posts of the users who asked last, in 24 MB at
// most, and tells whether a kept number is still right. It is safe for concurrent use.
//
// It keeps the ids of the unread posts that the viewer was allowed to see. The viewer may still
// see them if three things hold:
//
//   - SQL has no unfinished job of a change in the posts that the viewer may see, and the viewer
//     mutes the same words ([Unread.ask]). Such a job is written with its change and ends when
//     inboxes agree with it.
//   - After that query, the viewer's inbox has the same epoch and generation ([unreadBasis]). A
//     change that takes a post from the viewer raises the generation once it is committed, also if
//     reads merge the author. So does an edit, if the viewer mutes words.
//   - The feeds still have the ids. They are read anew each time.
//
// Other posts in the feeds are read from SQL: new posts, and hidden posts, which may be shown at
// any time without notice. So no clock decides: a change either has a job, or has changed the
// inbox. A number that is not certain is counted anew.
//
// Keeping numbers saves half of the time of a count of thirty unread posts, two thirds of a count
// of 400 (BenchmarkUnread), and two thirds for a thousand readers of one event
// (BenchmarkUnreadOfMany). It saves nothing without unread posts. PostgreSQL, whose processors are
// the first limit of a large installation, has a tenth of the work: 117 instead of 1,474 µs for a
// count of 500 posts (docs/capacity.md).
type Unread struct {
	reader    *Reader
	db        *ent.Client
	dialect   string
	pullAbove int // Policy.PullAbove
	publisher *live.Publisher
	log       *slog.Logger
	kept      *lru.Cache[int64, unreadPosts]
	told      atomic.Int64 // how many kept numbers were returned
}

func newUnread(cfg Config, r *Reader) *Unread {
	return &Unread{
		reader: r, db: cfg.DB, dialect: cfg.Dialect, pullAbove: cfg.PullAbove, publisher: cfg.Publisher, log: cfg.Logger,
		kept: lru.New[int64, unreadPosts](keptBytes),
	}
}

// Count counts the posts of the viewer's timeline that are newer than the read marker, among the
// newest up to the inbox cap and among the newest mostLookedAtOnce, hidden replies included. Own posts do
// not count. It is 0 for an anonymous viewer. A number is kept, and posts that came since are added, as long
// as Unread can tell that it is still right. Every thousandth kept number is counted anyway, and logged as
// an error if it differs.
//
// Cost with a kept number: a query and a round trip; a query of the posts that came since and of
// hidden ones, if any; and another query and round trip if reads merge. Otherwise three queries,
// one of which reads the unread posts, at most mostLookedAtOnce.
func (u *Unread) Count(ctx context.Context, v session.Viewer) (int, error) {
	if v.ID == 0 {
		return 0, nil
	}
	a, err := u.ask(ctx, v.ID)
	if err != nil {
		return 0, err
	}
	kept, known := u.keptCount(ctx, v.ID, a)
	if known && !u.checkDue() {
		return kept, nil
	}
	r := timeline.Range{After: a.Marker, Limit: u.reader.feeds.InboxCap()}
	at, from := u.reader.visitInbox(ctx, v.ID, r, visibility.Bare, false)
	bounded, stopped := visibility.Bounded(mostLookedAtOnce, from)
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, bounded)
	if err != nil {
		return 0, err
	}
	counted := newUnreadPosts(v.ID, a.by(timeline.Coverage{Epoch: at.Epoch, Generation: at.generation}), posts)
	if n := counted.count(); known && kept != n {
		// If the kept number is still the same, it was wrong.
		if again, ok := u.keptCount(ctx, v.ID, a); ok && again == kept {
			u.log.ErrorContext(ctx, "kept unread count is wrong", "user", v.ID, "kept", kept, "counted", n)
		}
	}
	u.forget(v.ID)
	if a.Certain && *stopped == 0 { // and still is: otherwise the posts may come from an inbox that lags behind
		if now, err := u.ask(ctx, v.ID); err == nil && now.Certain && now.Words == a.Words {
			u.keep(v.ID, counted)
		}
	}
	return counted.count(), nil
}

// keptCount returns the unread count from the kept posts. ok is false if it cannot tell that the
// count is right.
func (u *Unread) keptCount(ctx context.Context, user int64, a unreadAnswer) (n int, ok bool) {
	if !a.Certain || !u.has(user) {
		return 0, false
	}
	if _, err := u.reader.writes.repeat(ctx, user, patiently); err != nil {
		return 0, false
	}
	merged, err := u.reader.merged.mergeable(ctx, user) // before the inbox is read: see prefetch.mergeable
	if err != nil {
		return 0, false
	}
	r := timeline.Range{After: a.Marker, Limit: u.reader.feeds.InboxCap()}
	patient, cancel := patiently(ctx)
	defer cancel()
	_, part, err := u.reader.visits.VisitPage(patient, user, r)
	if err != nil {
		return 0, false
	}
	kept, ok := u.of(user, a.Marker, a.by(part.Coverage))
	if !ok {
		return 0, false
	}
	_, parts, err := u.reader.readParts(ctx, u.reader.inbox(user), prefetch{mergeable: &merged, asked: r, part: part}, r)
	if err != nil || slices.ContainsFunc(parts, unready) {
		return 0, false
	}
	ids, floor := merge(parts, r)
	posts, err := u.reader.posts.Posts(ctx, visibility.Home, user, kept.lacks(ids), visibility.Bare)
	if err != nil {
		return 0, false
	}
	kept = kept.with(user, ids, posts)
	whole := len(ids) < r.Limit && floor <= r.After+1
	if !whole && kept.len() < r.Limit { // more may be unread, in SQL
		return 0, false
	}
	u.keep(user, kept)
	return kept.count(), true
}

// MarkRead moves the viewer's read marker forwards to the entry of the cursor, never backwards. A
// cursor of the future moves it to the newest post. MarkRead returns the unread count after that.
// Errors: Unauthenticated, BadInput.
//
// Cost: three statements, a message to the user's connections, and Count.
func (u *Unread) MarkRead(ctx context.Context, v session.Viewer, upTo string) (int, error) {
	if v.ID == 0 {
		return 0, refusal.ErrSignIn
	}
	var c paging.Cursor
	var err error
	for _, list := range []paging.List{paging.Latest, paging.RankedBy, paging.Ranked} {
		if c, err = paging.Decode(upTo, list, v.ID); err == nil {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	moved, err := u.moveMarker(ctx, v.ID, c.ID)
	if err != nil {
		return 0, err
	}
	if moved {
		_, err := u.publisher.Publish(ctx, live.Event{Kind: live.MarkerMoved}, []int64{v.ID})
		if err != nil {
			u.log.WarnContext(ctx, "other devices not told of the read marker", "error", err)
		}
	}
	return u.Count(ctx, v)
}

// Counts is Count for many users, without a visit. It leaves out users whose timelines Redis does
// not hold completely, and some users with many posts to count.
//
// Cost: for a thousand users with kept numbers, four queries and a round trip, and at most five
// queries of the posts that came since. For other users, two more queries, and all unread posts
// are read.
func (u *Unread) Counts(ctx context.Context, users []int64) (map[int64]int, error) {
	counts := make(map[int64]int, len(users))
	for chunk := range slices.Chunk(users, 1000) {
		if err := u.countMany(ctx, chunk, counts); err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// countMany adds the counts of the users to counts.
func (u *Unread) countMany(ctx context.Context, users []int64, counts map[int64]int) error {
	answers, err := u.askMany(ctx, users)
	if err != nil {
		return err
	}
	timelines, err := u.timelines(ctx, users, answers)
	if err != nil {
		return err
	}
	had, lacking := make(map[int64]unreadPosts, len(users)), make(map[int64][]int64, len(users))
	var anew []int64
	for user, t := range timelines {
		a := answers[user]
		kept, known := u.of(user, a.Marker, a.by(t.inbox))
		if !known || !a.Certain {
			kept, anew = newUnreadPosts(user, a.by(t.inbox), nil), append(anew, user)
		}
		had[user], lacking[user] = kept, kept.lacks(t.ids)
	}
	shown, err := u.reader.posts.ShownOfMany(ctx, lacking)
	if err != nil {
		return err
	}
	again := answers // like Count, ask again for users who are counted anew
	if len(anew) > 0 {
		if again, err = u.askMany(ctx, anew); err != nil {
			return err
		}
	}
	for user, posts := range shown {
		t, a := timelines[user], answers[user]
		now := had[user].with(user, t.ids, posts)
		if !t.whole && now.len() < u.reader.feeds.InboxCap() { // more may be unread, in SQL
			continue
		}
		counts[user] = now.count()
		if b, asked := again[user]; a.Certain && (!asked || b.Certain && b.Words == a.Words) {
			u.keep(user, now)
		}
	}
	return nil
}

// unreadTimeline is the part of a user's feeds above the read marker.
type unreadTimeline struct {
	ids   []int64 // newest first, including hidden posts
	whole bool    // the user has no other unread posts
	inbox timeline.Coverage
}

// timelines returns the timelines of the users whose feeds Redis has.
func (u *Unread) timelines(ctx context.Context, users []int64, answers map[int64]unreadAnswer) (map[int64]unreadTimeline, error) {
	merged, err := u.reader.merged.mergeable(ctx, users...)
	if err != nil || u.pullAbove == AlwaysPull {
		return nil, err
	}
	outboxes := map[int64][]int64{} // the merged authors that each user follows
	if len(merged) > 0 {
		list, err := u.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, users), rows.Among(follow.FieldFolloweeID, merged)).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("read followees to merge: %w", err)
		}
		for _, row := range list {
			outboxes[row.FollowerID] = append(outboxes[row.FollowerID], row.FolloweeID)
		}
	}
	feeds, lowest := make([]timeline.Above, 0, len(users)), answers[users[0]].Marker
	for _, user := range users {
		feeds = append(feeds, timeline.Above{Key: timeline.Inbox(user), After: answers[user].Marker})
		lowest = min(lowest, answers[user].Marker)
	}
	index := map[int64]int{} // the index in feeds of each author's outbox
	for _, authors := range outboxes {
		for _, author := range authors {
			if _, known := index[author]; !known {
				index[author] = len(feeds)
				feeds = append(feeds, timeline.Above{Key: timeline.Outbox(author), After: lowest})
			}
		}
	}
	limit := u.reader.feeds.InboxCap()
	parts, err := u.reader.feeds.PagesAbove(ctx, feeds, limit)
	if err != nil {
		return nil, err
	}
	timelines := make(map[int64]unreadTimeline, len(users))
	for i, user := range users {
		mine := []timeline.Part{parts[i]}
		for _, author := range outboxes[user] {
			mine = append(mine, parts[index[author]])
		}
		if len(outboxes[user]) > u.reader.mergeAll || slices.ContainsFunc(mine, unready) {
			continue
		}
		r := timeline.Range{After: answers[user].Marker, Limit: limit}
		ids, floor := merge(mine, r)
		if below := slices.IndexFunc(ids, func(id int64) bool { return id <= r.After }); below >= 0 {
			ids = ids[:below]
		}
		timelines[user] = unreadTimeline{ids, len(ids) < limit && floor <= r.After+1, parts[i].Coverage}
	}
	return timelines, nil
}

// unready reports whether a feed is not Ready, so that its ids are unknown.
func unready(p timeline.Part) bool { return p.State != timeline.Ready }

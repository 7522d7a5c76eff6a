package home

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent/follow"
	"tideline/feed/internal/rows"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// UnreadCount counts the posts of the viewer's timeline that are newer than the read marker,
// among the newest up to the inbox cap. Own posts do not count. It is 0 for an anonymous viewer.
// A number is kept, and posts that came since are added, as long as [unreadCounts] can tell that
// it is still right. Every thousandth kept number is counted anyway, and logged as an error if it
// differs.
//
// Cost with a kept number: a query and a round trip; a query of the posts that came since and of
// hidden ones, if any; and another query and round trip if reads merge. Otherwise three queries,
// one of which reads the unread posts, at most the inbox cap.
func (h *Home) UnreadCount(ctx context.Context, v session.Viewer) (int, error) {
	if v.ID == 0 {
		return 0, nil
	}
	a, err := h.unread.ask(ctx, v.ID)
	if err != nil {
		return 0, err
	}
	kept, known := keptUnread(ctx, h, v.ID, a)
	if known && !h.unread.checkDue() {
		return kept, nil
	}
	r := timeline.Range{After: a.Marker, Limit: h.tl.InboxCap()}
	at, from := h.visitInbox(ctx, v.ID, r, 0, false)
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	if err != nil {
		return 0, err
	}
	counted := newUnreadPosts(v.ID, a.by(timeline.Coverage{Epoch: at.Epoch, Generation: at.generation}), posts)
	if n := counted.count(); known && kept != n {
		// If the kept number is still the same, it was wrong.
		if again, ok := keptUnread(ctx, h, v.ID, a); ok && again == kept {
			h.log.ErrorContext(ctx, "a number of unread posts was kept that is wrong", "user", v.ID, "kept", kept, "counted", n)
		}
	}
	h.unread.forget(v.ID)
	if a.Certain { // and still is: otherwise the posts may come from an inbox that lags behind
		if now, err := h.unread.ask(ctx, v.ID); err == nil && now.Certain && now.Words == a.Words {
			h.unread.keep(v.ID, counted)
		}
	}
	return counted.count(), nil
}

// keptUnread returns the unread count from the kept posts. ok is false if it cannot tell that the
// count is right.
func keptUnread(ctx context.Context, h *Home, user int64, a unreadAnswer) (n int, ok bool) {
	if !a.Certain || !h.unread.has(user) {
		return 0, false
	}
	if _, err := h.writes.repeat(ctx, user, patiently); err != nil {
		return 0, false
	}
	merged, err := h.merged.mergeable(ctx, user) // before the inbox is read: see prefetch.mergeable
	if err != nil {
		return 0, false
	}
	r := timeline.Range{After: a.Marker, Limit: h.tl.InboxCap()}
	patient, cancel := patiently(ctx)
	defer cancel()
	_, part, err := h.tl.VisitPage(patient, user, r)
	if err != nil {
		return 0, false
	}
	kept, ok := h.unread.of(user, a.Marker, a.by(part.Coverage))
	if !ok {
		return 0, false
	}
	_, parts, err := h.readParts(ctx, h.inbox(user), prefetch{mergeable: &merged, asked: r, part: part}, r)
	if err != nil || slices.ContainsFunc(parts, unready) {
		return 0, false
	}
	ids, floor := merge(parts, r)
	posts, err := h.posts.Posts(ctx, visibility.Home, user, kept.lacks(ids), 0)
	if err != nil {
		return 0, false
	}
	kept = kept.with(user, ids, posts)
	whole := len(ids) < r.Limit && floor <= r.After+1
	if !whole && kept.len() < r.Limit { // more may be unread, in SQL
		return 0, false
	}
	h.unread.keep(user, kept)
	return kept.count(), true
}

// UnreadCounts is UnreadCount for many users, without a visit. It leaves out users whose
// timelines Redis does not hold completely, and some users with many posts to count.
//
// Cost: for a thousand users with kept numbers, four queries and a round trip, and at most five
// queries of the posts that came since. For other users, two more queries, and all unread posts
// are read.
func (h *Home) UnreadCounts(ctx context.Context, users []int64) (map[int64]int, error) {
	counts := make(map[int64]int, len(users))
	for chunk := range slices.Chunk(users, 1000) {
		if err := countMany(ctx, h, chunk, counts); err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// countMany adds the counts of the users to counts.
func countMany(ctx context.Context, h *Home, users []int64, counts map[int64]int) error {
	answers, err := h.unread.askMany(ctx, users)
	if err != nil {
		return err
	}
	timelines, err := h.unreadIDs(ctx, users, answers)
	if err != nil {
		return err
	}
	had, lacking := make(map[int64]unreadPosts, len(users)), make(map[int64][]int64, len(users))
	var anew []int64
	for user, t := range timelines {
		a := answers[user]
		kept, known := h.unread.of(user, a.Marker, a.by(t.inbox))
		if !known || !a.Certain {
			kept, anew = newUnreadPosts(user, a.by(t.inbox), nil), append(anew, user)
		}
		had[user], lacking[user] = kept, kept.lacks(t.ids)
	}
	shown, err := h.posts.ShownOfMany(ctx, lacking)
	if err != nil {
		return err
	}
	again := answers // like UnreadCount, ask again for users who are counted anew
	if len(anew) > 0 {
		if again, err = h.unread.askMany(ctx, anew); err != nil {
			return err
		}
	}
	for user, posts := range shown {
		t, a := timelines[user], answers[user]
		now := had[user].with(user, t.ids, posts)
		if !t.whole && now.len() < h.tl.InboxCap() { // more may be unread, in SQL
			continue
		}
		counts[user] = now.count()
		if b, asked := again[user]; a.Certain && (!asked || b.Certain && b.Words == a.Words) {
			h.unread.keep(user, now)
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

// unreadIDs returns the timelines of the users whose feeds Redis has.
func (h *Home) unreadIDs(ctx context.Context, users []int64, answers map[int64]unreadAnswer) (map[int64]unreadTimeline, error) {
	merged, err := h.merged.mergeable(ctx, users...)
	if err != nil || h.cfg.PullAbove == AlwaysPull {
		return nil, err
	}
	outboxes := map[int64][]int64{} // the merged authors that each user follows
	if len(merged) > 0 {
		list, err := h.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, users), rows.Among(follow.FieldFolloweeID, merged)).All(ctx)
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
	limit := h.tl.InboxCap()
	parts, err := h.tl.PagesAbove(ctx, feeds, limit)
	if err != nil {
		return nil, err
	}
	timelines := make(map[int64]unreadTimeline, len(users))
	for i, user := range users {
		mine := []timeline.Part{parts[i]}
		for _, author := range outboxes[user] {
			mine = append(mine, parts[index[author]])
		}
		if len(outboxes[user]) > defaultMergeAll || slices.ContainsFunc(mine, unready) {
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

package home

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent/follow"
	"tideline/ent/readmarker"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/unread"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// UnreadCount counts the entries of the viewer's timeline, among the newest up to
// the inbox cap, that are newer than the read marker; own posts do not count. It is
// 0 for an anonymous viewer. The number is kept, and what came since is added, where
// package unread can tell that it is still right; every thousandth is counted all the same,
// and one that differs is logged as an error.
//
// Cost: a query and a round trip where the number is kept, a query of the posts that came
// since and of hidden ones, if any, and another query and round trip where reads merge; else
// three queries, one of them of as many posts as are unread, at most the inbox cap.
func (h *Home) UnreadCount(ctx context.Context, v account.Viewer) (int, error) {
	if v.ID == 0 {
		return 0, nil
	}
	a, err := h.unread.Ask(ctx, v.ID)
	if err != nil {
		return 0, err
	}
	kept, known := h.keptUnread(ctx, v.ID, a)
	if known && !h.unread.CheckDue() {
		return kept, nil
	}
	r := timeline.Range{After: a.Marker, Limit: h.tl.InboxCap()}
	at, from := h.visitInbox(ctx, v.ID, r, 0, false)
	posts, err := visibility.Fill(ctx, visibility.Home, v.ID, r, from)
	if err != nil {
		return 0, err
	}
	counted := unread.Counted(v.ID, unread.Basis{Position: at.Position, Generation: at.generation, Words: a.Words}, posts)
	if n := counted.Count(); known && kept != n {
		// Unless it has become another one meanwhile, it was wrong.
		if again, ok := h.keptUnread(ctx, v.ID, a); ok && again == kept {
			h.log.ErrorContext(ctx, "a number of unread posts was kept that is wrong", "user", v.ID, "kept", kept, "counted", n)
		}
	}
	h.unread.Forget(v.ID)
	if a.Certain { // and still is: else the posts may be those of an inbox that lags behind
		if now, err := h.unread.Ask(ctx, v.ID); err == nil && now.Certain && now.Words == a.Words {
			h.unread.Keep(v.ID, counted)
		}
	}
	return counted.Count(), nil
}

// keptUnread is UnreadCount by what is kept, if that is right.
func (h *Home) keptUnread(ctx context.Context, user int64, a unread.Answer) (n int, ok bool) {
	if !a.Certain || !h.unread.Has(user) {
		return 0, false
	}
	if _, err := h.writes.Repeat(ctx, user, patiently); err != nil {
		return 0, false
	}
	merged, err := h.merged.mergeable(ctx, user) // before the inbox is read: see prefetch
	if err != nil {
		return 0, false
	}
	r := timeline.Range{After: a.Marker, Limit: h.tl.InboxCap()}
	patient, cancel := patiently(ctx)
	defer cancel()
	at, part, err := h.tl.VisitPage(patient, user, r)
	if err != nil {
		return 0, false
	}
	kept, ok := h.unread.Of(user, a.Marker, unread.Basis{Position: at, Generation: part.Generation, Words: a.Words})
	if !ok {
		return 0, false
	}
	_, parts, err := h.readParts(ctx, h.inbox(user), prefetch{mergeable: &merged, asked: r, part: part}, r)
	if err != nil || slices.ContainsFunc(parts, func(p timeline.Part) bool { return p.State != timeline.Ready }) {
		return 0, false
	}
	ids, floor := merge(parts, r)
	posts, err := h.posts.Posts(ctx, visibility.Home, user, kept.Lacks(ids))
	if err != nil {
		return 0, false
	}
	kept = kept.With(user, ids, posts)
	whole := len(ids) < r.Limit && floor <= r.After+1
	if !whole && kept.Len() < r.Limit { // more may be unread, in SQL
		return 0, false
	}
	h.unread.Keep(user, kept)
	return kept.Count(), true
}

// UnreadCounts is UnreadCount of many users. It leaves out users whose timelines
// Redis does not have whole.
//
// Cost: at most eight queries for a thousand users, and two round trips.
func (h *Home) UnreadCounts(ctx context.Context, users []int64) (map[int64]int, error) {
	counts := make(map[int64]int, len(users))
	for chunk := range slices.Chunk(users, 1000) {
		unread, err := h.unreadIDs(ctx, chunk)
		if err != nil {
			return counts, err
		}
		if err := h.posts.CountUnread(ctx, unread, h.tl.InboxCap(), counts); err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// unreadIDs returns, for each user, the ids of the posts above the read marker,
// hidden ones included. It has none for users whose timeline Redis does not have
// whole.
func (h *Home) unreadIDs(ctx context.Context, users []int64) (map[int64][]int64, error) {
	markers, err := h.db.ReadMarker.Query().Where(rows.Among(readmarker.FieldID, users)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read markers: %w", err)
	}
	above := make(map[int64]int64, len(users))
	for _, m := range markers {
		above[m.ID] = m.PostID
	}
	merged, err := h.merged.mergeable(ctx, users...)
	if err != nil || h.cfg.PullAbove == AlwaysPull {
		return nil, err
	}
	outboxes := map[int64][]int64{} // of the authors whom the user's reads merge
	if len(merged) > 0 {
		list, err := h.db.Follow.Query().Where(rows.Among(follow.FieldFollowerID, users), rows.Among(follow.FieldFolloweeID, merged)).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("read followees to merge: %w", err)
		}
		for _, row := range list {
			outboxes[row.FollowerID] = append(outboxes[row.FollowerID], row.FolloweeID)
		}
	}
	inboxes, lowest := make([]timeline.Above, len(users)), above[users[0]]
	for i, user := range users {
		inboxes[i] = timeline.Above{Key: timeline.Inbox(user), After: above[user]}
		lowest = min(lowest, above[user])
	}
	feeds := inboxes
	index := map[int64]int{} // of an author's outbox in feeds
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
	unread := make(map[int64][]int64, len(users))
	for i, user := range users {
		mine := []timeline.Part{parts[i]}
		for _, author := range outboxes[user] {
			mine = append(mine, parts[index[author]])
		}
		ready := len(outboxes[user]) <= defaultMergeAll
		for _, p := range mine {
			ready = ready && p.State == timeline.Ready
		}
		r := timeline.Range{After: above[user], Limit: limit}
		ids, floor := merge(mine, r)
		below := slices.IndexFunc(ids, func(id int64) bool { return id <= r.After })
		if below >= 0 {
			ids = ids[:below]
		}
		if ready && (len(ids) == limit || floor <= r.After+1) {
			unread[user] = ids
		}
	}
	return unread, nil
}

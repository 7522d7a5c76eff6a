package home

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent/follow"
	"tideline/ent/readmarker"
	"tideline/feed/internal/rows"
	"tideline/timeline"
)

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

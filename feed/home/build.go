package home

import (
	"context"
	"errors"
	"slices"

	"tideline/feed/internal/rows"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// buildAttempts is how often a build reads SQL again because something was
// removed meanwhile.
const buildAttempts = 5

// buildRequest asks for a feed to be built; begun is its build if somebody has
// opened it already.
type buildRequest struct {
	feed  cachedFeed
	begun *timeline.Build
}

// buildSoon asks for a feed to be built in the background.
func (h *Home) buildSoon(feed cachedFeed, begun *timeline.Build) {
	select {
	case h.builds <- buildRequest{feed, begun}:
	default: // the next read asks again
	}
}

// BuildInbox fills the inbox of an active user from SQL, up to its cap, if it is
// missing and not being built. What is posted meanwhile is not missed.
//
// Cost: as a first page without an inbox, of cap posts.
func (h *Home) BuildInbox(ctx context.Context, user int64) error {
	return h.build(ctx, h.inbox(user), nil)
}

func (h *Home) build(ctx context.Context, feed cachedFeed, begun *timeline.Build) error {
	// From Begin on the feed takes what is delivered; only then SQL is read.
	if begun == nil {
		b, started, err := h.tl.Begin(ctx, feed.key)
		if err != nil || !started {
			return err
		}
		begun = &b
	}
	// Nor before its user is active: Redis may have forgotten that, and the call that
	// makes the user active again has dropped the inbox before it was begun here.
	if feed.key == timeline.Inbox(feed.user) {
		active, err := h.tl.Active(ctx, []int64{feed.user})
		if err != nil {
			return rows.Wrap("build an inbox", err)
		}
		if !active[0] {
			return rows.Wrap("build an inbox", h.tl.Drop(ctx, feed.key))
		}
	}
	b := *begun
	for range buildAttempts {
		all := timeline.Range{Limit: feed.cap}
		posts, err := visibility.Fill(ctx, feed.surface, feed.user, all, feed.truth)
		if err != nil {
			return err
		}
		floor := int64(0)
		if len(posts) == feed.cap {
			floor = posts[feed.cap-1].ID
		}
		ids := rows.PostIDs(posts)
		// What was posted meanwhile, and is yet to be delivered, may have been shown
		// from SQL: the next reader of the feed must not miss it.
		if len(ids) > 0 {
			newer, err := visibility.Fill(ctx, feed.surface, feed.user, timeline.Range{After: ids[0], Limit: feed.cap}, feed.truth)
			if err != nil {
				return err
			}
			ids = slices.Concat(rows.PostIDs(newer), ids)
		}
		done, err := h.tl.Finish(ctx, &b, ids, floor)
		if errors.Is(err, timeline.ErrBuildLost) {
			return nil // the next read begins again
		}
		if done || err != nil {
			return err
		}
	}
	return h.tl.Drop(ctx, feed.key)
}

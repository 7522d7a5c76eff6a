package home

import (
	"context"
	"errors"
	"slices"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// cachedFeed is a feed that is kept in Redis, and where its truth is.
type cachedFeed struct {
	key     timeline.Key
	cap     int
	surface visibility.Surface // what is let in: posts that
	user    int64              // this user may be shown there
	truth   visibility.Source
	merges  bool // reads merge outboxes into it
	observe func(hit bool)
}

// inbox is the user's home timeline.
func (h *Home) inbox(user int64) cachedFeed {
	return cachedFeed{
		key: timeline.Inbox(user), cap: h.tl.InboxCap(), surface: visibility.Home, user: user,
		truth: h.pulled(user), merges: true, observe: h.cfg.Observe,
	}
}

// outbox is all that the author posted, whoever may see it.
func (h *Home) outbox(author int64) cachedFeed {
	return cachedFeed{
		key: timeline.Outbox(author), cap: h.tl.OutboxCap(), surface: visibility.Direct, user: author,
		truth: h.posts.AllBy(author), observe: h.cfg.Observe,
	}
}

// prefetch is what a request found out about a feed before it reads it. The zero
// prefetch is nothing.
type prefetch struct {
	// begun is a build of the feed that the request has opened and has to hand to a
	// builder.
	begun *timeline.Build
	// merged are the authors whom readers merged before the inbox was read. By a
	// later list, an author who was merged then would be neither there nor, yet, in
	// the inbox.
	merged *[]int64
	// asked is a range of the feed, and part what it held a moment ago.
	asked timeline.Range
	part  timeline.Part
}

// cached is the source that reads a feed in Redis, merged with those beside it,
// as far as they cover the range, and goes on in SQL, on the same ids, where
// they do not. Without the feed all comes from SQL and the feed is built behind
// the answer, not beside it, where it would take its time. When Redis fails, SQL
// answers.
func (h *Home) cached(feed cachedFeed, known prefetch) visibility.Source {
	return func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		feeds, parts, err := h.readParts(ctx, feed, known, r)
		begun := known.begun
		if begun != nil {
			defer h.builder.soon(feed, begun)
			known.begun = nil // once
		}
		if errors.Is(err, errTooManyOutboxes) {
			return feed.truth(ctx, viewer, r)
		}
		if err != nil {
			h.log.WarnContext(ctx, "feed not read; going on in SQL", "error", err)
			feed.observe(false)
			return feed.truth(ctx, viewer, r)
		}
		ready := true
		for i, p := range parts {
			if p.State != timeline.Ready {
				ready = false
				if begun == nil || feeds[i].key != feed.key {
					defer h.builder.soon(feeds[i], nil) // also while it is being built: the builder may be dead
				}
			}
		}
		feed.observe(ready)
		if !ready {
			return feed.truth(ctx, viewer, r)
		}
		ids, floor := merge(parts, r)
		if r.Ascending && r.After < floor {
			return feed.truth(ctx, viewer, r)
		}
		var b visibility.Batch
		if len(ids) > 0 {
			if b, err = h.hydrate(ctx, viewer, feeds, parts, ids); err != nil {
				return visibility.Batch{}, err
			}
		}
		b.More = len(ids) == r.Limit
		if b.More || r.Ascending || r.After >= floor-1 {
			return b, nil
		}
		r.Before, r.Limit = min(r.Upper(), floor), r.Limit-len(ids)
		below, err := feed.truth(ctx, viewer, r)
		if err != nil {
			return visibility.Batch{}, err
		}
		return b.Then(below), nil
	}
}

// readParts reads what a feed in Redis, and those that are merged into it, have of
// the near end of a range.
func (h *Home) readParts(ctx context.Context, feed cachedFeed, known prefetch, r timeline.Range) (feeds []cachedFeed, parts []timeline.Part, err error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	feeds = []cachedFeed{feed}
	if r == known.asked {
		parts = append(parts, known.part)
	}
	after := r.After
	if feed.merges {
		plan, err := h.plan(ctx, feed.user, known.merged, r)
		if err != nil {
			return nil, nil, err
		}
		if plan.skipInbox {
			feeds, parts = nil, nil
		} else if len(parts) > 0 && parts[0].State != timeline.Ready {
			return feeds, parts, nil
		}
		feeds, r.After = append(feeds, plan.feeds...), plan.after
	}
	more, err := h.tl.Pages(ctx, keysOf(feeds[len(parts):]), r)
	parts = append(parts, more...)
	if r.After > after {
		// Fewer than the limit may lie above, as newest posts have been deleted. What
		// is below, these feeds alone do not have.
		for i := range parts {
			parts[i].Floor = max(parts[i].Floor, r.After+1)
		}
	}
	return feeds, parts, err
}

func keysOf(feeds []cachedFeed) []timeline.Key {
	keys := make([]timeline.Key, len(feeds))
	for i, feed := range feeds {
		keys[i] = feed.key
	}
	return keys
}

// merge is the first ids of what several feeds hold of a range, up to its limit,
// each id once, and the highest of the feeds' floors: from there on upwards the
// union is complete. Ids below it are left out.
func merge(parts []timeline.Part, r timeline.Range) (ids []int64, floor int64) {
	for _, p := range parts {
		ids = append(ids, p.IDs...)
		floor = max(floor, p.Floor)
	}
	if len(parts) > 1 {
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if !r.Ascending {
			slices.Reverse(ids)
		}
	}
	// A feed that has more ids than the limit ends with one that is not among the
	// first of the union, so nothing is missing before that.
	ids = slices.DeleteFunc(ids[:min(len(ids), r.Limit)], func(id int64) bool { return id < floor })
	return ids, floor
}

// hydrate reads the posts of ids that parts of feeds hold, in their order. Those
// that no longer exist never come back: they are taken out of the feeds that hold
// them, a round trip each.
func (h *Home) hydrate(ctx context.Context, viewer int64, feeds []cachedFeed, parts []timeline.Part, ids []int64) (visibility.Batch, error) {
	b, gone, err := h.posts.ByIDs(ctx, viewer, ids)
	if err != nil || len(gone) == 0 {
		return b, err
	}
	for i, feed := range feeds {
		held := slices.DeleteFunc(slices.Clone(gone), func(id int64) bool { return !slices.Contains(parts[i].IDs, id) })
		if len(held) == 0 {
			continue
		}
		if err := h.tl.Remove(ctx, feed.key, held...); err != nil {
			h.log.DebugContext(ctx, "deleted posts not taken out of a feed", "error", err)
		}
	}
	return b, nil
}

// fill reads those of a feed's posts in the range that the viewer may be shown.
func (h *Home) fill(ctx context.Context, viewer int64, feed cachedFeed, known prefetch, r timeline.Range) ([]*ent.Post, error) {
	return visibility.Fill(ctx, feed.surface, viewer, r, h.cached(feed, known))
}

// PostsBy reads those of the author's posts in the range that the viewer may see:
// from the outbox, and once some of that turned out to be hidden, from SQL, which
// need not go through all that an outbox has of it.
//
// Cost: one round trip to Redis and one query of the posts. Where the outbox does
// not have the range, or some of its posts are hidden, two queries more: the
// relation of the two, and the posts that it may see. How many others lie between
// makes no difference.
func (h *Home) PostsBy(ctx context.Context, viewer, author int64, r timeline.Range) ([]*ent.Post, error) {
	feed := h.outbox(author)
	feed.truth = h.posts.By(visibility.Direct, author)
	from := h.cached(feed, prefetch{})
	return visibility.Fill(ctx, visibility.Direct, viewer, r, func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		defer func() { from = feed.truth }()
		return from(ctx, viewer, r)
	})
}

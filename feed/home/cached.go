package home

import (
	"context"
	"errors"
	"slices"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// cachedFeed is a feed in Redis together with its truth in SQL.
type cachedFeed struct {
	key     timeline.Key
	cap     int
	surface visibility.Surface // only posts are let in that
	user    int64              // this user may be shown on the surface
	truth   visibility.Source
	ids     visibility.Source // the truth, for a build
	merges  bool              // reads merge outboxes into it
	unseen  bool              // nobody is shown what is read
	with    visibility.Fields // what is read with posts, as far as Redis has them
	observe func(hit bool)
	// had reports whether reads may leave a post out, as the caller has it; nil: they may not.
	had func(post int64) bool
}

// inbox returns the inbox of the user's home timeline.
func (h *Home) inbox(user int64) cachedFeed {
	return cachedFeed{
		key: timeline.Inbox(user), cap: h.tl.InboxCap(), surface: visibility.Inbox, user: user,
		truth: h.posts.Pulled(user), ids: h.posts.PulledIDs(user), merges: true, with: visibility.Likes, observe: h.cfg.Observe,
	}
}

// outbox returns the outbox with all that the author posted, whoever may see it.
func (h *Home) outbox(author int64) cachedFeed {
	return cachedFeed{
		key: timeline.Outbox(author), cap: h.tl.OutboxCap(), surface: visibility.Direct, user: author,
		truth: h.posts.AllBy(author), ids: h.posts.AllBy(author), with: visibility.Likes, observe: h.cfg.Observe,
	}
}

// prefetch has what a request found out about a feed before it reads it. The zero
// prefetch is empty.
type prefetch struct {
	// begun is a build of the feed that the request has opened. The request must
	// pass it to a builder.
	begun *timeline.Build
	// mergeable are the authors whom the reader may have merged before the inbox was read. A
	// later list may lack an author who was merged then and whose posts are not yet in
	// the inbox.
	mergeable *[]int64
	// asked is a range of the feed, and part what the feed had of it a moment ago.
	asked timeline.Range
	part  timeline.Part
}

// cached returns a source that reads a feed in Redis, merged with other feeds, as
// far as they cover the range. Below that it goes on in SQL with the same ids.
// Without the feed all comes from SQL, and the feed is built after the answer,
// because a build beside the answer delays it. When Redis fails, SQL answers.
func (h *Home) cached(feed cachedFeed, known prefetch) visibility.Source {
	return func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		var feeds []cachedFeed
		var parts []timeline.Part
		repeated, err := h.writes.repeat(ctx, feed.user, patiently)
		if repeated {
			known = prefetch{begun: known.begun} // the rest is older
		}
		if err == nil {
			feeds, parts, err = h.readParts(ctx, feed, known, r)
		}
		begun := known.begun
		switch {
		case begun != nil:
			defer h.builder.soon(feed, begun)
			known.begun = nil // once
		case r == known.asked && known.part.State != timeline.Ready:
			// The outboxes may answer without the feed, and its builder may be dead.
			defer h.builder.soon(feed, nil)
		}
		if errors.Is(err, errTooManyOutboxes) {
			return h.fromSQL(feed, nil, nil)(ctx, viewer, r)
		}
		if err != nil {
			h.log.WarnContext(ctx, "feed not read; going on in SQL", "error", err)
			feed.observe(false)
			return feed.truth(ctx, viewer, r)
		}
		if begun != nil && len(feeds) > 0 && feeds[0].key == feed.key {
			parts[0].Coverage = begun.Coverage() // it was missing a moment before
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
			return h.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		}
		ids, floor := merge(parts, r)
		if r.Ascending && r.After < floor {
			return h.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		}
		var b visibility.Batch
		if len(ids) > 0 {
			if b, err = h.hydrate(ctx, viewer, feed, feeds, parts, ids); err != nil {
				return visibility.Batch{}, err
			}
		}
		b.More = len(ids) == r.Limit
		if b.More || r.Ascending || r.After >= floor-1 {
			return b, nil
		}
		r.Before, r.Limit = min(r.Upper(), floor), r.Limit-len(ids)
		below, err := h.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		if err != nil {
			return visibility.Batch{}, err
		}
		return b.Then(below), nil
	}
}

// readParts reads the near end of a range from a feed in Redis and from those that
// are merged into it.
func (h *Home) readParts(ctx context.Context, feed cachedFeed, known prefetch, r timeline.Range) (feeds []cachedFeed, parts []timeline.Part, err error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	feeds = []cachedFeed{feed}
	if r == known.asked {
		parts = append(parts, known.part)
	}
	after := r.After
	if feed.merges {
		plan, err := h.plan(ctx, feed.user, known.mergeable, r)
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
	var keys []timeline.Key
	for _, feed := range feeds[len(parts):] {
		keys = append(keys, feed.key)
	}
	more, err := h.tl.Pages(ctx, keys, r)
	parts = append(parts, more...)
	if r.After > after {
		// Fewer ids than the limit may lie above, as the newest posts have been
		// deleted. Below, these feeds alone are not complete.
		for i := range parts {
			parts[i].Floor = max(parts[i].Floor, r.After+1)
		}
	}
	return feeds, parts, err
}

// merge returns the first ids of the range in the union of several feeds, up to the
// limit, each id once. It also returns the highest floor of the feeds: from there
// on upwards the union is complete. Ids below it are left out.
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
	// A feed that has more ids than the limit ends with an id that is not among the
	// first of the union, so nothing is missing before that.
	ids = slices.DeleteFunc(ids[:min(len(ids), r.Limit)], func(id int64) bool { return id < floor })
	return ids, floor
}

// hydrate reads the posts of ids from parts of feeds, in their order, as the feed that
// is read wants them. A deleted post never comes back: hydrate removes its id from the
// feeds that have it, with a round trip each.
func (h *Home) hydrate(ctx context.Context, viewer int64, read cachedFeed, feeds []cachedFeed, parts []timeline.Part, ids []int64) (visibility.Batch, error) {
	last := ids[len(ids)-1]
	if read.had != nil {
		if ids = slices.DeleteFunc(slices.Clone(ids), read.had); len(ids) == 0 {
			return visibility.Batch{Last: last}, nil
		}
	}
	b, gone, err := h.posts.ByIDs(ctx, viewer, ids, read.with)
	b.Last = last
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

// Unseen returns the sources of the user's timeline: in SQL, and as a page has it. Reads from
// them are not counted, and nobody sees what they find.
//
// Cost: as a first page without an inbox, and as a page, of as many posts.
func (h *Home) Unseen(user int64) (inSQL, asRead visibility.Source) {
	inbox := h.inbox(user)
	inbox.unseen, inbox.observe = true, func(bool) {}
	return inbox.truth, h.cached(inbox, prefetch{})
}

// PostsBy reads those of the author's posts in the range that the viewer may see.
// It reads the outbox. Once some of the posts turn out to be hidden, it reads SQL,
// which can skip hidden posts without reading them.
//
// Cost: one round trip to Redis and one query of the posts. Where the outbox does
// not cover the range, or some of its posts are hidden, two queries more: the
// relation of the two, and the posts that the viewer may see. The number of hidden
// posts between them makes no difference.
func (h *Home) PostsBy(ctx context.Context, viewer, author int64, r timeline.Range) ([]*ent.Post, error) {
	feed := h.outbox(author)
	feed.truth = h.posts.By(visibility.Direct, author)
	from := h.cached(feed, prefetch{})
	return visibility.Fill(ctx, visibility.Direct, viewer, r, func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		defer func() { from = feed.truth }()
		return from(ctx, viewer, r)
	})
}

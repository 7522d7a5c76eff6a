package home

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// Reader reads feeds: from Redis as far as they cover a range, merged with the outboxes of merged
// authors, and below from SQL. It asks the builder for feeds that are missing. It is safe for
// concurrent use.
type Reader struct {
	feeds    *timeline.Feeds
	visits   *timeline.Visits
	posts    *visibility.Reader
	log      *slog.Logger
	observe  func(hit bool)
	mergeAll int // Policy.MergeAll
	arrivals *Arrivals
	merged   *mergedAuthors
	builder  *builder
	writes   *pendingWrites
}

// cachedFeed is a feed in Redis together with the source of its posts in SQL.
type cachedFeed struct {
	key     timeline.Key
	cap     int
	user    int64              // the owner, or the author of an outbox
	surface visibility.Surface // a build stores only posts that the user may be shown on it
	truth   visibility.Source
	ids     visibility.Source // the SQL source for a build
	merges  bool              // reads merge outboxes into it
	unseen  bool              // no user sees the posts that are read
	with    visibility.Fields // the fields that are read with posts by their ids
	observe func(hit bool)
	// had reports whether the caller already has a post, so that a read may leave it out. If had
	// is nil, reads leave out no post.
	had func(post int64) bool
}

// inbox returns the inbox of the user's home timeline.
func (rd *Reader) inbox(user int64) cachedFeed {
	return cachedFeed{
		key: timeline.Inbox(user), cap: rd.feeds.InboxCap(), surface: visibility.Inbox, user: user,
		truth: rd.posts.Pulled(user), ids: rd.posts.PulledIDs(user), merges: true, with: visibility.Likes, observe: rd.observe,
	}
}

// outbox returns the feed of all posts of the author, whatever their visibility.
func (rd *Reader) outbox(author int64) cachedFeed {
	return cachedFeed{
		key: timeline.Outbox(author), cap: rd.feeds.OutboxCap(), surface: visibility.Inbox, user: author,
		truth: rd.posts.AllBy(author), ids: rd.posts.AllBy(author), with: visibility.Likes, observe: rd.observe,
	}
}

// prefetch holds facts about a feed that a request has learned before it reads the feed. The zero
// prefetch is empty.
type prefetch struct {
	// begun is a build of the feed that the request has opened. The request must pass it to a
	// builder.
	begun *timeline.Build
	// mergeable lists the authors whose outboxes the reader may merge. It is read before the
	// inbox: a later list may lack an author who was merged then and whose posts are not in the
	// inbox yet.
	mergeable *[]int64
	// asked is a range of the feed, and part the answer of Redis for that range.
	asked timeline.Range
	part  timeline.Part
}

// cached returns a source that reads a feed in Redis, merged with outboxes, as far down as they
// cover the range. Below, it continues in SQL with the same ids. Without the feed, SQL answers,
// and the feed is built after the answer, because a build at the same time would delay it. If
// Redis fails, SQL answers.
func (rd *Reader) cached(feed cachedFeed, known prefetch) visibility.Source {
	return func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		var feeds []cachedFeed
		var parts []timeline.Part
		repeated, err := rd.writes.repeat(ctx, feed.user, patiently)
		if repeated {
			known = prefetch{begun: known.begun} // the other facts are from before the writes
		}
		if err == nil {
			feeds, parts, err = rd.readParts(ctx, feed, known, r)
		}
		begun := known.begun
		switch {
		case begun != nil:
			defer rd.builder.soon(feed, begun)
			known.begun = nil // once
		case r == known.asked && known.part.State != timeline.Ready:
			// The outboxes may answer without the feed, and its builder may be dead.
			defer rd.builder.soon(feed, nil)
		}
		if errors.Is(err, errTooManyOutboxes) {
			feed.observe(false)
			return rd.fromSQL(feed, nil, nil)(ctx, viewer, r)
		}
		if err != nil {
			rd.log.WarnContext(ctx, "feed not read; going on in SQL", "error", err)
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
					defer rd.builder.soon(feeds[i], nil) // also while it is being built: the builder may be dead
				}
			}
		}
		feed.observe(ready)
		if !ready {
			return rd.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		}
		ids, floor := merge(parts, r)
		if r.Ascending && r.After < floor {
			return rd.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		}
		var b visibility.Batch
		if len(ids) > 0 {
			if b, err = rd.hydrate(ctx, viewer, feed, feeds, parts, ids); err != nil {
				return visibility.Batch{}, err
			}
		}
		b.More = len(ids) == r.Limit
		if b.More || r.Ascending || r.After >= floor-1 {
			return b, nil
		}
		r.Before, r.Limit = min(r.Upper(), floor), r.Limit-len(ids)
		below, err := rd.fromSQL(feed, feeds, parts)(ctx, viewer, r)
		if err != nil {
			return visibility.Batch{}, err
		}
		return b.Then(below), nil
	}
}

// readParts reads the first ids of a range from a feed in Redis and from the outboxes that are
// merged into it.
func (rd *Reader) readParts(ctx context.Context, feed cachedFeed, known prefetch, r timeline.Range) (feeds []cachedFeed, parts []timeline.Part, err error) {
	ctx, cancel := patiently(ctx)
	defer cancel()
	feeds = []cachedFeed{feed}
	if r == known.asked {
		parts = append(parts, known.part)
	}
	after := r.After
	if feed.merges {
		plan, err := rd.plan(ctx, feed.user, known.mergeable, r)
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
	more, err := rd.feeds.Pages(ctx, keys, r)
	parts = append(parts, more...)
	if r.After > after {
		// These feeds are complete only above r.After. They may have fewer ids there than the
		// limit, because the newest posts of an author may have been deleted.
		for i := range parts {
			parts[i].Floor = max(parts[i].Floor, r.After+1)
		}
	}
	return feeds, parts, err
}

// merge returns the first ids of the range in the union of several feeds, each id once, up to the
// limit. floor is the highest floor of the feeds: the union is complete from there upwards. merge
// leaves out ids below floor.
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
	// A part that was cut at the limit reaches at least as far as the first ids of the union. So
	// the union misses nothing there.
	ids = slices.DeleteFunc(ids[:min(len(ids), r.Limit)], func(id int64) bool { return id < floor })
	return ids, floor
}

// hydrate reads the posts with the given ids, in their order, with the fields that the feed read
// asks for. A deleted post never comes back: hydrate removes its id from the feeds that have it,
// with one round trip each.
func (rd *Reader) hydrate(ctx context.Context, viewer int64, read cachedFeed, feeds []cachedFeed, parts []timeline.Part, ids []int64) (visibility.Batch, error) {
	last := ids[len(ids)-1]
	if read.had != nil {
		if ids = slices.DeleteFunc(slices.Clone(ids), read.had); len(ids) == 0 {
			return visibility.Batch{Last: last}, nil
		}
	}
	b, gone, err := rd.posts.ByIDs(ctx, viewer, ids, read.with)
	b.Last = last
	if err != nil || len(gone) == 0 {
		return b, err
	}
	for i, feed := range feeds {
		held := slices.DeleteFunc(slices.Clone(gone), func(id int64) bool { return !slices.Contains(parts[i].IDs, id) })
		if len(held) == 0 {
			continue
		}
		if err := rd.feeds.Remove(ctx, feed.key, held...); err != nil {
			rd.log.DebugContext(ctx, "deleted posts not taken out of a feed", "error", err)
		}
	}
	return b, nil
}

// Unseen returns two sources of the user's timeline: one reads SQL, and one reads as a page does.
// Their reads do not count as hits or misses, and no user sees the posts.
//
// Cost: the first costs as much as a first page without an inbox, the second as much as a page.
func (rd *Reader) Unseen(user int64) (inSQL, asRead visibility.Source) {
	inbox := rd.inbox(user)
	inbox.unseen, inbox.observe = true, func(bool) {}
	return inbox.truth, rd.cached(inbox, prefetch{})
}

// mostLooked is how many posts a page of a home timeline or a profile looks at. SQL skips posts of a hidden
// visibility, but not replies and reposts that the viewer may not see, and an author may have written any
// number of these in a row. SQLite takes about 24 ms for 1,000 posts, and an inbox has at most as many.
// mostLookedAtOnce is the bound of reads that have no next page: a count, a ranking, and what a client missed.
const (
	mostLooked       = 1000
	mostLookedAtOnce = 10 * mostLooked
)

// PostsBy reads the author's posts in the range that the viewer may see. It reads the outbox. If
// some of the posts are hidden, it continues in SQL, which skips posts of a hidden visibility without
// reading them. It looks at mostLooked posts. If it ended there, stopped is an id behind which the list
// goes on, and otherwise 0.
//
// Cost: one round trip to Redis and one query of the posts. If the outbox does not cover the
// range, or some of its posts are hidden, two more queries: the relation of the viewer and the
// author, and the posts that the viewer may see. A run of hidden replies or reposts costs another read of
// twice the size.
func (rd *Reader) PostsBy(ctx context.Context, viewer, author int64, r timeline.Range) (posts []*ent.Post, stopped int64, err error) {
	feed := rd.outbox(author)
	feed.truth = rd.posts.By(visibility.OfAuthor, author)
	from := rd.cached(feed, prefetch{})
	bounded, end := visibility.Bounded(mostLooked, func(ctx context.Context, viewer int64, r timeline.Range) (visibility.Batch, error) {
		defer func() { from = feed.truth }()
		return from(ctx, viewer, r)
	})
	posts, err = visibility.Fill(ctx, visibility.OfAuthor, viewer, r, bounded)
	return posts, *end, err
}

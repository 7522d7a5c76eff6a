package home

import (
	"context"
	"maps"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// fromSQL is the truth of a feed for a reader whom Redis does not answer: feeds and
// parts are what it had. The fan-out of a post that SQL has may still be to come, and
// a feed may become ready without it, because its builder read SQL before. So fromSQL
// puts the posts that may not have arrived where later reads look for them, before
// anybody sees them. When something was removed from there since before SQL was read,
// it reads SQL again, as often as a builder does.
//
// Cost: that of the truth; one round trip more where it has posts that may not have
// arrived.
func (h *Home) fromSQL(feed cachedFeed, feeds []cachedFeed, parts []timeline.Part) visibility.Source {
	return func(ctx context.Context, viewer int64, r timeline.Range) (b visibility.Batch, err error) {
		read := map[timeline.Key]timeline.Coverage{}
		for i, p := range parts {
			read[feeds[i].key] = p.Coverage
		}
		var again map[timeline.Key]timeline.Coverage
		for range buildAttempts {
			arrived := h.ArrivedID(ctx)
			if b, err = feed.truth(ctx, viewer, r); err != nil {
				return b, err
			}
			posts, err := b.Visible(feed.surface, viewer, arrived)
			if err != nil || len(posts) == 0 || feed.unseen {
				return b, err
			}
			if again = h.show(ctx, feed, feeds, read, posts); len(again) == 0 {
				return b, nil
			}
			maps.Copy(read, again)
		}
		for k := range again { // it does not come to rest: the next build finds the posts
			if err := h.tl.Drop(ctx, k); err != nil {
				return b, err
			}
		}
		return b, nil
	}
}

// show puts posts that are about to be shown where later reads look for them: into the
// outbox that was read of their author, else into the inbox. Where the inbox is not
// read, it puts them into outboxes, and where the reader does not know, into both. It
// returns the feeds that may have lost posts since they were read.
func (h *Home) show(ctx context.Context, feed cachedFeed, feeds []cachedFeed, read map[timeline.Key]timeline.Coverage, posts []*ent.Post) map[timeline.Key]timeline.Coverage {
	put := map[timeline.Key][]int64{}
	for _, p := range posts {
		outbox := timeline.Outbox(p.AuthorID)
		_, merged := read[outbox]
		if len(feeds) == 0 || merged || feeds[0].key != feed.key {
			put[outbox] = append(put[outbox], p.ID)
		}
		if len(feeds) == 0 || !merged && feeds[0].key == feed.key {
			put[feed.key] = append(put[feed.key], p.ID)
		}
	}
	var shown []timeline.Showing
	for k, ids := range put {
		shown = append(shown, timeline.Showing{Key: k, Read: read[k], IDs: ids})
	}
	ctx, cancel := patiently(ctx)
	defer cancel()
	again, err := h.tl.Show(ctx, shown...)
	if err != nil {
		h.log.WarnContext(ctx, "posts are shown that an inbox may lack for a moment", "error", err)
	}
	return again
}

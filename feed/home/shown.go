package home

import (
	"context"
	"maps"

	"tideline/ent"
	"tideline/feed/visibility"
	"tideline/timeline"
)

// fromSQL returns a source that reads a feed's posts in SQL, for a read that Redis does not
// answer. feeds and parts are the feeds that were read, and the answers of Redis. A post that SQL
// has may still wait for its fan-out, and a feed may become Ready without it, because its builder
// read SQL earlier. So before any user sees the posts, fromSQL puts those that may not have
// arrived into the feeds that later reads use. If a post was removed from such a feed since
// before SQL was read, fromSQL reads SQL again, as often as a builder does. Then it drops the
// feed.
//
// Cost: the cost of the SQL source; one more round trip if it returns posts that may not have
// arrived.
func (rd *Reader) fromSQL(feed cachedFeed, feeds []cachedFeed, parts []timeline.Part) visibility.Source {
	return func(ctx context.Context, viewer int64, r timeline.Range) (b visibility.Batch, err error) {
		read := map[timeline.Key]timeline.Coverage{}
		for i, p := range parts {
			read[feeds[i].key] = p.Coverage
		}
		var again map[timeline.Key]timeline.Coverage
		for range buildAttempts {
			arrived := rd.arrivals.ArrivedID(ctx)
			if b, err = feed.truth(ctx, viewer, r); err != nil {
				return b, err
			}
			posts, err := b.Visible(feed.surface, viewer, arrived)
			if err != nil || len(posts) == 0 || feed.unseen {
				return b, err
			}
			if again = rd.show(ctx, feed, feeds, read, posts); len(again) == 0 {
				return b, nil
			}
			maps.Copy(read, again)
		}
		for k := range again { // posts are removed all the time: the next build finds these
			if err := rd.feeds.Drop(ctx, k); err != nil {
				return b, err
			}
		}
		return b, nil
	}
}

// show puts posts that are about to be shown into the feeds that later reads use: into the
// author's outbox if the read merged it, else into the inbox. If the read skipped the inbox, it
// puts them into outboxes. If no feed was read, it puts them into both. It returns the feeds from
// which posts may have been removed since they were read, with their present coverage.
func (rd *Reader) show(ctx context.Context, feed cachedFeed, feeds []cachedFeed, read map[timeline.Key]timeline.Coverage, posts []*ent.Post) map[timeline.Key]timeline.Coverage {
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
	again, err := rd.feeds.Show(ctx, shown...)
	if err != nil {
		rd.log.WarnContext(ctx, "posts are shown that an inbox may lack for a moment", "error", err)
	}
	return again
}

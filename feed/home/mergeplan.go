package home

import (
	"context"
	"errors"

	"tideline/timeline"
)

// mergePlan says which outboxes one read of a home timeline merges.
type mergePlan struct {
	feeds []cachedFeed
	// skipInbox: the feeds have everything that the inbox has.
	skipInbox bool
	// chosen says that there are more, which have nothing in the range.
	chosen bool
	// after is the id above which the feeds are complete; below it other outboxes
	// may have posts.
	after int64
}

// maxOutboxes bounds the outboxes of one page.
const maxOutboxes = 1000

// errTooManyOutboxes says that a page needs more outboxes than that: SQL answers.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// plan chooses the outboxes that a read of a home timeline merges. They are those
// of the merged followees, beside the inbox. When nobody is pushed they are those of all
// followees and the viewer, without the inbox, which is fan-out on read. Mergeable is the
// list from before the inbox was read, or nil.
//
// Of more than Policy.MergeAll authors, plan chooses those who reach the near end
// of the range, by their latest post ids in Redis. It sorts these ids and takes as
// many as the limit; an author whose latest id is below the last of them is left
// out. That costs one round trip of O(authors), and a query of the authors whom
// Redis does not know yet.
func (h *Home) plan(ctx context.Context, viewer int64, mergeable *[]int64, r timeline.Range) (mergePlan, error) {
	p := mergePlan{after: r.After}
	if mergeable == nil {
		list, err := h.merged.mergeable(ctx, viewer)
		if err != nil {
			return p, err
		}
		mergeable = &list
	}
	authors, listed, err := h.merged.among(ctx, viewer, *mergeable)
	p.skipInbox = !listed
	if err == nil && !listed {
		authors, err = h.merged.sources(ctx, viewer)
	}
	if err != nil {
		return p, err
	}
	if p.chosen = len(authors) > h.cfg.MergeAll; p.chosen {
		if authors, p.after, err = h.merged.reaching(ctx, authors, r); err != nil {
			return p, err
		}
	}
	for _, author := range authors {
		p.feeds = append(p.feeds, h.outbox(author))
	}
	return p, nil
}

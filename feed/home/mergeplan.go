package home

import (
	"context"
	"errors"

	"tideline/timeline"
)

// mergePlan says what a read of a home timeline puts together with the inbox.
type mergePlan struct {
	feeds []cachedFeed
	// skipInbox: the feeds have all that the inbox has.
	skipInbox bool
	// after is the id above which the feeds are all that there are; below it there
	// may be others.
	after int64
}

// maxOutboxes is how many outboxes one page is put together from at the most.
const maxOutboxes = 1000

// errTooManyOutboxes says that a page would take more: SQL answers.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// plan is which outboxes the reads of a home timeline merge: of the followees
// whose posts are not pushed, into the inbox; or, where nearly nobody's are, of
// all followees and the viewer, without the inbox, which is fan-out on read.
// Merged is the list of merged authors from before the inbox was read, or nil.
//
// Of more than Policy.MergeAll authors it is the ones who reach the near end of
// the range: Redis knows the newest id of each. The newest ids, as many as the
// limit, have a lowest one, and authors who have posted nothing since are left
// out. That costs one round trip of O(authors), and a query of the authors whom
// Redis does not know yet.
func (h *Home) plan(ctx context.Context, viewer int64, merged *[]int64, r timeline.Range) (mergePlan, error) {
	p := mergePlan{after: r.After}
	if merged == nil {
		list, err := h.merged.list(ctx)
		if err != nil {
			return p, err
		}
		merged = &list
	}
	authors, listed, err := h.merged.among(ctx, viewer, *merged)
	p.skipInbox = !listed
	if err == nil && !listed {
		authors, err = h.merged.sources(ctx, viewer)
	}
	if err != nil {
		return p, err
	}
	if len(authors) > h.cfg.MergeAll {
		if authors, p.after, err = h.merged.reaching(ctx, authors, r); err != nil {
			return p, err
		}
	}
	for _, author := range authors {
		p.feeds = append(p.feeds, h.outbox(author))
	}
	return p, nil
}

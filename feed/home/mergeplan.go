package home

import (
	"context"
	"errors"

	"tideline/timeline"
)

// mergePlan says which outboxes one read of a home timeline merges.
type mergePlan struct {
	feeds []cachedFeed
	// skipInbox says that the feeds have every post that the inbox has.
	skipInbox bool
	// chosen says that there are more outboxes, which have no post in the range.
	chosen bool
	// after is the id above which the feeds are complete. Below it, other outboxes may have
	// posts.
	after int64
}

// maxOutboxes bounds the outboxes that a page merges.
const maxOutboxes = 1000

// errTooManyOutboxes says that a page needs more than maxOutboxes outboxes. SQL answers then.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// plan chooses the outboxes that a read of a home timeline merges: the outboxes of the merged
// followees, beside the inbox. If no author is pushed, it chooses the outboxes of all followees
// and of the viewer, without the inbox: fan-out on read. mergeable is the list from before the
// inbox was read, or nil.
//
// If there are more than Policy.MergeAll authors, plan chooses those who reach the near end of
// the range. It sorts their latest post ids, which Redis has, and takes as many as the limit. An
// author whose latest id is lower is left out. This costs one round trip of O(authors), and a
// query of the authors whose latest ids Redis does not have.
func (rd *Reader) plan(ctx context.Context, viewer int64, mergeable *[]int64, r timeline.Range) (mergePlan, error) {
	p := mergePlan{after: r.After}
	if mergeable == nil {
		list, err := rd.merged.mergeable(ctx, viewer)
		if err != nil {
			return p, err
		}
		mergeable = &list
	}
	authors, listed, err := rd.merged.among(ctx, viewer, *mergeable)
	p.skipInbox = !listed
	if err == nil && !listed {
		authors, err = rd.merged.sources(ctx, viewer)
	}
	if err != nil {
		return p, err
	}
	if p.chosen = len(authors) > rd.mergeAll; p.chosen {
		if authors, p.after, err = rd.merged.reaching(ctx, authors, r); err != nil {
			return p, err
		}
	}
	for _, author := range authors {
		p.feeds = append(p.feeds, rd.outbox(author))
	}
	return p, nil
}

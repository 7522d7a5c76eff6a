package home

import (
	"context"
	"errors"

	"tideline/timeline"
)

// mergePlan says which outboxes one read of a home timeline merges.
type mergePlan struct {
	feeds []cachedFeed // the outboxes
	// skipInbox is true if the outboxes are merged without the inbox, because no post is pushed to
	// inboxes.
	skipInbox bool
	// selected is true if feeds are selected from a longer list by the latest post ids of the
	// authors. An outbox that was left out has no post in the range above after.
	selected bool
	// after is the lower end of the part of the range that the plan covers. At or below after, an
	// outbox that was left out may have posts.
	after int64
}

// maxOutboxes bounds the outboxes that plan selects if there are more than Policy.MergeAll.
const maxOutboxes = 1000

// errTooManyOutboxes is returned if more than maxOutboxes outboxes may have posts on the page. The
// caller then reads SQL, or does without the outboxes.
var errTooManyOutboxes = errors.New("too many outboxes reach the page")

// plan chooses the outboxes that a read of a home timeline merges. Usually these are the outboxes of
// the merged followees, beside the inbox. If the policy is AlwaysPull, they are the outboxes of the
// viewer and of all followees except muted ones, without the inbox: fan-out on read. mergeable is the
// list of Reader.merged.mergeable from before the inbox was read. If it is nil, plan reads the list.
//
// If there are more than Policy.MergeAll authors, plan selects those whose latest post ids show that
// they may have posts on the page, as mergedAuthors.reaching does. The plan then may cover only the
// upper part of the range. This costs one round trip of O(authors), and a query for the authors whose
// latest ids Redis does not have.
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
	if p.selected = len(authors) > rd.mergeAll; p.selected {
		if authors, p.after, err = rd.merged.reaching(ctx, authors, r); err != nil {
			return p, err
		}
	}
	for _, author := range authors {
		p.feeds = append(p.feeds, rd.outbox(author))
	}
	return p, nil
}

package workers

import (
	"context"

	"tideline/feed/job"
)

// DefaultPartSize is the default of Config.PartSize. Dividing takes about as long as pushing to
// 10,000 followers.
const DefaultPartSize = 100_000

// partOfPost is the payload of a fan-out or of one of its parts. Each part is a fan-out to its own
// followers, with its own claim, rounds, last look and retries. Only the author's own feeds and
// devices are updated before the parts exist. The JSON names must not change.
type partOfPost struct {
	job.Post
	Part followerPart `json:"part,omitzero"`
}

// begins reports whether the attempt is at the beginning of its follower scan.
func (f *fanOut) begins() bool {
	return f.progress.scanPosition == f.part.Start && f.progress.Only == nil
}

// watch starts to watch the author's fences if the attempt is at the beginning of a part.
func (f *fanOut) watch(ctx context.Context) error {
	if !f.begins() {
		return nil
	}
	err := f.w.Timelines.Masters.WithinLimit(ctx, func(ctx context.Context) error { return f.w.Timelines.Fences.Watch(ctx, f.args.Author, f.job.ID) })
	f.progress.Unwatched = f.progress.Unwatched || err != nil
	return f.reached(err)
}

// divide writes the first page and leaves the other followers to parts, if more than a part
// remains. It reports whether the followers of this job are done. They are not if the fan-out is
// not divided: an earlier round or attempt may have written pages, or a user on the page was not
// reached.
func (f *fanOut) divide(ctx context.Context, r *followerScan) (done bool, err error) {
	if !f.divisible || r.restCount() <= max(f.w.PartSize, f.w.PageSize) {
		return false, nil
	}
	page := r.first(ctx, f.change)
	if page.Err != nil {
		return false, page.Err
	}
	if err = f.nextPage(ctx, page); err == nil {
		err = f.waitUntilTold()
	}
	if err != nil || page.End || f.progress.Left != nil {
		return page.End, err
	}
	if f.parts, err = f.w.scans.divide(ctx, f.author, page, f.w.PartSize); f.parts != nil {
		f.countRecentLater()
	}
	return f.parts != nil, err
}

// countRecentLater subtracts the most recently active followers from the counts if the follower
// scan, or one of its parts, reaches them again and counts them then.
func (f *fanOut) countRecentLater() {
	p := &f.progress
	if f.pushes {
		p.Pushed -= p.RecentLeft
	} else {
		p.Pulled -= p.RecentLeft
	}
	p.RecentLeft = 0
}

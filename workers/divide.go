package workers

import (
	"context"
	"encoding/json"
	"fmt"

	"tideline/feed/job"
	"tideline/internal/trace"
)

// DefaultPartSize is the default of Config.PartSize. To divide takes about as long as to push to
// 10,000 followers.
const DefaultPartSize = 100_000

// partOfPost is the payload of a fan-out, or of one part of it. Each part is a fan-out to its
// own followers, with a claim, rounds, a last look and second attempts of its own; only the
// author's own feeds and devices are done before there are parts. A process of the version
// before does not know parts, and fans out to all followers. The names in JSON must not change.
type partOfPost struct {
	job.Post
	Part followerPart `json:"part,omitzero"`
}

// begins reports whether the attempt is at the beginning of its follower scan.
func (f *fanOut) begins() bool {
	return f.progress.scanPosition == f.part.Start && f.progress.Only == nil
}

// watch begins to watch the author's fences at the beginning of a part.
func (f *fanOut) watch(ctx context.Context) error {
	if !f.begins() {
		return nil
	}
	err := f.w.Timelines.Masters().Try(ctx, func(ctx context.Context) error { return f.w.Timelines.Watch(ctx, f.args.Author, f.job.ID) })
	f.progress.Unwatched = f.progress.Unwatched || err != nil
	return f.reached(err)
}

// divide does the first page of a follower scan that goes on for more than a part, and leaves the
// others to parts. It reports whether the followers are done with that: they are not if the
// fan-out is not to be divided, for which nothing may have been done before the round, and
// everybody must have been reached.
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

// countRecentLater takes those of the most recently active followers out of the counts by whom
// the follower scan, or one of its parts, comes again in their turn.
func (f *fanOut) countRecentLater() {
	p := &f.progress
	if f.pushes {
		p.Pushed -= p.RecentLeft
	} else {
		p.Pulled -= p.RecentLeft
	}
	p.RecentLeft = 0
}

// payloads are those of the jobs for the parts.
func (f *fanOut) payloads(ctx context.Context) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for _, part := range f.parts {
		raw, err := json.Marshal(partOfPost{f.args, part})
		if err != nil {
			return nil, fmt.Errorf("divide post %d: %w", f.args.Post, err)
		}
		list = append(list, trace.Carry(ctx, raw))
	}
	return list, nil
}

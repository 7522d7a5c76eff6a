package workers

import (
	"context"
	"fmt"
	"slices"

	"tideline/feed/job"
	"tideline/queue"
)

// walk is the state of a PostsBackdated job. Its JSON name must not change.
type walk struct {
	Before int64 `json:"before"` // the next page has follows below this id; 0 at the beginning
}

// postsBackdated handles posts that were written with a time in the distant past. It makes the
// outboxes of the authors Missing, and the inboxes of the authors and of their followers, so that
// the next reads take them from SQL. It tells only the watchers of a conversation that has gained old
// replies. The job is never given up because Redis or
// SQL cannot be reached.
func (w *Workers) postsBackdated(ctx context.Context, j *queue.Job) error {
	var args job.Authors
	var p walk
	if err := decode(j, &args, &p); err != nil {
		return err
	}
	err := w.Timelines.Own.Forget(ctx, args.Authors, args.Newest)
	if err == nil {
		err = w.conversationsUnknown(ctx, args.Roots...)
	}
	for err == nil {
		if err := j.Confirm(ctx); err != nil {
			return err
		}
		var users []int64
		if users, p.Before, err = w.Visibility.Followers.OfMany(ctx, args.Authors, p.Before, w.PageSize); err != nil {
			break
		}
		slices.Sort(users)
		if err = w.Timelines.Inboxes.Forget(ctx, slices.Compact(users)); err != nil {
			break
		}
		if p.Before == 0 {
			return nil
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
	return queue.Unavailable(fmt.Errorf("drop feeds that lack old posts: %w", err))
}

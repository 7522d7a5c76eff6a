package workers

import (
	"context"
	"errors"
	"fmt"

	"tideline/feed/job"
	"tideline/queue"
	"tideline/timeline"
)

// relationChanged makes the inboxes of both users agree with their current relation. A follow adds
// posts, an unfollow, block or mute removes them, and a friendship that begins or ends affects
// posts for friends. After a mute, which the muted user must not notice, only the inbox of the
// first user is handled. Waiting changes of the same two users are handled at the same time.
func (w *Workers) relationChanged(ctx context.Context, j *queue.Job) error {
	var args job.Relation
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	a, b, others := args.Users[0], args.Users[1], w.coalescer.with(ctx, j, args)
	err := w.Home.Sync.InboxAndNotify(ctx, a, b, args.Change, j.Again, others...)
	if !args.First { // even if the first cannot be reached
		err = errors.Join(err, w.Home.Sync.InboxAndNotify(ctx, b, a, args.Change, j.Again, others...))
	}
	return w.patient(ctx, err)
}

// wordsChanged tells the clients of a user to read again after a change of what the user mutes, or of the
// user's HomeReplies.
func (w *Workers) wordsChanged(ctx context.Context, j *queue.Job) error {
	var args job.Words
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	return w.patient(ctx, w.Home.Sync.WordsChanged(ctx, args.User, args.Change))
}

// patient returns err. It wraps err as Unavailable if a part of a cluster cannot be reached.
func (w *Workers) patient(ctx context.Context, err error) error {
	if err = w.Timelines.Masters.MarkUnreached(ctx, err); timeline.SomeUnreached(err) {
		return queue.Unavailable(err)
	}
	return err
}

// returnProgress is the state of the job, from which a later attempt resumes. Its JSON name must
// not change.
type returnProgress struct {
	Before int64 `json:"Before"` // the next page has follows below this id; 0 at the beginning
}

// authorReturns handles the last step of an author's return to push. It puts the posts that were
// written while readers merged the author into the inboxes of active followers, and then lets
// readers stop merging. Followers who are not active build their inbox from SQL when they return.
func (w *Workers) authorReturns(ctx context.Context, j *queue.Job) error {
	var args job.Author
	var p returnProgress
	if err := decode(j, &args, &p); err != nil {
		return err
	}
	for {
		users, next, err := w.Visibility.Followers.OfMany(ctx, []int64{args.Author}, p.Before, w.PageSize)
		if err != nil {
			return err
		}
		active, err := w.Timelines.Active.Of(ctx, users)
		if err != nil {
			return w.patient(ctx, fmt.Errorf("look up active followers: %w", err))
		}
		for _, user := range active {
			if err := j.Confirm(ctx); err != nil {
				return err
			}
			if _, err := w.Home.Sync.Inbox(ctx, user, args.Author); err != nil {
				return w.patient(ctx, err)
			}
		}
		if p.Before = next; next == 0 {
			return w.Home.FanOutModes.FinishReturnToPush(ctx, args)
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
}

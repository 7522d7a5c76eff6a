package workers

import (
	"context"
	"errors"
	"fmt"

	"tideline/feed/job"
	"tideline/queue"
	"tideline/timeline"
)

// relationChanged makes the inboxes of both users agree with their relation as it is now: a
// follow brings posts in, an unfollow, block or mute takes them out, and friends made or lost
// decide on the posts for friends. After a mute, which the muted user must not notice, it looks
// at the inbox of the first user only. Changes of the same two that wait are done with it.
func (w *Workers) relationChanged(ctx context.Context, j *queue.Job) error {
	var args job.Relation
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	a, b, others := args.Users[0], args.Users[1], w.coalescer.with(ctx, j, args)
	err := w.Home.SyncInboxAndNotify(ctx, a, b, args.Change, j.Again, others...)
	if !args.First { // whether the first can be reached or not
		err = errors.Join(err, w.Home.SyncInboxAndNotify(ctx, b, a, args.Change, j.Again, others...))
	}
	return w.patient(ctx, err)
}

// wordsChanged has the clients of a user read again whose muted words changed.
func (w *Workers) wordsChanged(ctx context.Context, j *queue.Job) error {
	var args job.Words
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	return w.patient(ctx, w.Home.WordsChanged(ctx, args.User, args.Change))
}

// patient returns err, which is Unavailable if a part of a cluster cannot be reached.
func (w *Workers) patient(ctx context.Context, err error) error {
	if err = w.Timelines.Masters().Tolerate(ctx, err); timeline.SomeUnreached(err) {
		return queue.Unavailable(err)
	}
	return err
}

// returnProgress is the state of the job: what a later attempt goes on from. Its
// name in JSON must not change.
type returnProgress struct {
	Before int64 `json:"Before"` // the follow that the next page starts before; 0 at the beginning
}

// authorReturns handles the last step of an author's return to push. It puts what
// the author posted while readers merged it into the inboxes of active followers,
// and then lets readers stop merging. Followers who are away build their inbox
// from SQL when they come back.
func (w *Workers) authorReturns(ctx context.Context, j *queue.Job) error {
	var args job.Author
	var p returnProgress
	if err := decode(j, &args, &p); err != nil {
		return err
	}
	for {
		users, next, err := w.Visibility.FollowersOfMany(ctx, []int64{args.Author}, p.Before, w.PageSize)
		if err != nil {
			return err
		}
		active, err := w.Timelines.ActiveOf(ctx, users)
		if err != nil {
			return w.patient(ctx, fmt.Errorf("look up active followers: %w", err))
		}
		for _, user := range active {
			if err := j.Confirm(ctx); err != nil {
				return err
			}
			if _, err := w.Home.SyncInbox(ctx, user, args.Author); err != nil {
				return w.patient(ctx, err)
			}
		}
		if p.Before = next; next == 0 {
			return w.Home.FinishReturnToPush(ctx, args)
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
}

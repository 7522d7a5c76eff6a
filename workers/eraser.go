package workers

import (
	"context"
	"fmt"

	"tideline/feed/account"
	"tideline/feed/job"
	"tideline/queue"
)

// userDeleted handles a user who is to be deleted. The job is never given up, and a later attempt
// finds the rows that are left. feed/account/DELETION.md describes the steps.
func (w *Workers) userDeleted(ctx context.Context, j *queue.Job) error {
	var args job.User
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	e, err := account.BeginErasure(ctx, w.DB, args.User, w.Now)
	if e != nil && err == nil {
		e.Forget = w.Timelines.Inboxes.Forget
		pace := j.GiveWay(ctx)
		e.Pace = func(ctx context.Context) error {
			pace()
			return j.Confirm(ctx)
		}
		err = e.Run(ctx, j.ID)
	}
	if err == nil { // also after an attempt whose worker died behind the last row
		err = w.Timelines.Own.ForgetUser(ctx, args.User)
	}
	if err != nil {
		return queue.Unavailable(fmt.Errorf("delete user %d: %w", args.User, err))
	}
	return nil
}

// postErased deletes the likes of a deleted post, and then its row. The job is never given up.
func (w *Workers) postErased(ctx context.Context, j *queue.Job) error {
	var args job.Post
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	pace := j.GiveWay(ctx)
	err := account.ErasePost(ctx, w.DB, args.Post, func(ctx context.Context) error {
		pace()
		return j.Confirm(ctx)
	})
	if err != nil {
		return queue.Unavailable(fmt.Errorf("delete post %d: %w", args.Post, err))
	}
	return nil
}

// deleteDue starts the deletion of users whose grace period is over, and ends suspensions whose time is over.
// It also looks again for traces of users who are deleted.
func (w *Workers) deleteDue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, trimFor)
	defer cancel()
	n, err := w.Accounts.BeginDeletions(ctx)
	if err != nil {
		w.Logger.WarnContext(ctx, "deletions of users not begun", "error", err)
	} else if n > 0 {
		w.Logger.InfoContext(ctx, "deletions of users begun", "users", n)
	}
	if n, err := w.Accounts.EndSuspensions(ctx); err != nil {
		w.Logger.WarnContext(ctx, "suspensions whose time is over not ended", "error", err)
	} else if n > 0 {
		w.Logger.InfoContext(ctx, "suspensions whose time is over ended", "users", n)
	}
	if _, err := account.EraseTraces(ctx, w.DB, w.Now(), w.Timelines.Own.ForgetUser); err != nil {
		w.Logger.WarnContext(ctx, "traces of deleted users not looked for", "error", err)
	}
}

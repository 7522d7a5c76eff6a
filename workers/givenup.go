package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/job"
	"tideline/live"
	"tideline/queue"
	"tideline/timeline"
)

// forgotten is the state of a PostGivenUp job. Its JSON names must not change.
type forgotten struct {
	Before int64 `json:"Before"` // the next page has follows below this id; 0 at the beginning
	outstanding
}

// postGivenUp handles two cases: the fan-out or the change of a post was given up, so it is unknown
// which inboxes the post reached; or an author was hidden or shown again, and an inbox that was built
// meanwhile lacks the author's posts. It makes the inboxes of all followers and the author's own feeds
// Missing, so that the next read takes them from SQL. It raises the author's latest post id for readers
// who merge the author's outbox, and tells connected users to read again. The job is never given up
// because Redis or SQL cannot be reached.
func (w *Workers) postGivenUp(ctx context.Context, j *queue.Job) error {
	var args job.Post
	var p forgotten
	if err := decode(j, &args, &p); err != nil {
		return err
	}
	f := &forgetting{w: w, forgotten: p}
	// Each attempt begins with the author's latest post id, outbox and inbox. Checkpoints record only
	// the progress through the followers.
	masters := w.Timelines.Masters
	err := f.later(ctx, masters.WithinLimit(ctx, func(ctx context.Context) error { return w.raiseLatest(ctx, args.Author) }))
	if err == nil {
		err = f.later(ctx, masters.WithinLimit(ctx, func(ctx context.Context) error { return w.Timelines.Feeds.Drop(ctx, timeline.Outbox(args.Author)) }))
	}
	if err == nil {
		err = f.forget(ctx, args.Author, []int64{args.Author})
	}
	if err == nil && args.Root != 0 {
		err = w.conversationsUnknown(ctx, args.Root)
	}
	for err == nil {
		if err := j.Confirm(ctx); err != nil {
			return err
		}
		var users []int64
		if users, f.Before, err = w.Visibility.Followers.OfMany(ctx, []int64{args.Author}, f.Before, w.PageSize); err != nil {
			break
		}
		if err = f.forget(ctx, args.Author, users); err != nil {
			break
		}
		if f.Before == 0 {
			// The pass over the followers is complete. If it could not reach some of them, the job fails,
			// and its next attempt is a pass over these.
			if f.Left == nil {
				return nil
			}
			err, f.outstanding = cmp.Or(f.reason, errNotAll), f.next()
		}
		if err := j.Checkpoint(ctx, f.forgotten); err != nil {
			return err
		}
	}
	return queue.Unavailable(fmt.Errorf("forget inboxes: %w", err))
}

// raiseLatest stores the id of the author's latest post in Redis, for readers who merge the
// author's outbox. The fan-out may not have done so.
func (w *Workers) raiseLatest(ctx context.Context, author int64) error {
	u, err := w.DB.User.Query().Where(user.ID(author)).Select(user.FieldLastPostID).Only(ctx)
	if ent.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the latest post of author %d: %w", author, err)
	}
	return w.Timelines.Latest.Raise(ctx, author, u.LastPostID)
}

// forgetting is one attempt to make inboxes Missing.
type forgetting struct {
	w *Workers
	forgotten
	reason error // why users are left for the next attempt
}

// forget makes the inboxes of the users Missing and tells the users to read again.
func (f *forgetting) forget(ctx context.Context, author int64, users []int64) error {
	inboxes := f.Only.of(users)
	if err := f.later(ctx, f.w.Timelines.Inboxes.Forget(ctx, inboxes)); err != nil {
		return err
	}
	// With TellAll, the previous pass could not notify all users, so this one notifies all.
	if !f.TellAll {
		users = inboxes
	}
	_, err := f.w.Publisher.Publish(ctx, live.Event{Kind: live.Invalidated, Author: author, Reason: "the timeline is read anew"}, users)
	f.Untold = f.Untold || err != nil
	return f.later(ctx, err)
}

// later lets the attempt continue if err says that a part of a cluster cannot be reached: it records
// the users of that part for the next attempt and returns nil. It returns all other errors.
func (f *forgetting) later(ctx context.Context, err error) error {
	var some *timeline.Unreached
	if err = f.w.Timelines.Masters.MarkUnreached(ctx, err); !errors.As(err, &some) {
		return err
	}
	f.Left, f.reason = f.Left.with(some.Users), err
	return nil
}

// relationGivenUp handles a changed relation whose job was given up. It makes the inboxes that
// depend on the relation Missing.
func (w *Workers) relationGivenUp(ctx context.Context, j *queue.Job) error {
	var args job.Relation
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	f := &forgetting{w: w}
	err := f.forget(ctx, args.Users[1], args.Users[:1])
	if !args.First {
		err = errors.Join(err, f.forget(ctx, args.Users[0], args.Users[1:]))
	}
	if err = errors.Join(err, f.reason, w.relationsUnknown(ctx, args.Users[:]...)); err != nil {
		return queue.Unavailable(fmt.Errorf("forget inboxes: %w", err))
	}
	return nil
}

// inboxesStale handles many relations that changed at once. It makes the inboxes of all their users
// Missing and tells connected users to read again. The job is never given up because something
// cannot be reached.
func (w *Workers) inboxesStale(ctx context.Context, j *queue.Job) error {
	var args job.Users
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	f := &forgetting{w: w}
	if err := errors.Join(f.forget(ctx, 0, args.Users), f.reason, w.relationsUnknown(ctx, args.Users...)); err != nil {
		return queue.Unavailable(fmt.Errorf("forget inboxes: %w", err))
	}
	return nil
}

// everybody is the state of a FeedsStale job. Its JSON names must not change.
type everybody struct {
	Inboxes bool  `json:"Inboxes,omitempty"` // all outboxes are done
	After   int64 `json:"After"`             // the next page has users above this id
}

// feedsStale handles a discarded job whose users are unknown. It makes all outboxes Missing,
// together with the latest post ids of authors, and then all inboxes. It tells connected users to
// read again. The job is never given up because something cannot be reached.
func (w *Workers) feedsStale(ctx context.Context, j *queue.Job) error {
	var p everybody
	if err := decode(j, &struct{}{}, &p); err != nil {
		return err
	}
	err := w.Timelines.Latest.Forget(ctx)
	for err == nil {
		if err := j.Confirm(ctx); err != nil {
			return err
		}
		var users []int64
		size := w.PageSize
		if users, err = w.DB.User.Query().Where(user.IDGT(p.After)).Order(user.ByID()).Limit(size).IDs(ctx); err != nil {
			break
		}
		if !p.Inboxes {
			err = w.Timelines.Own.ForgetOutboxes(ctx, users)
		} else if err = w.Timelines.Inboxes.Forget(ctx, users); err == nil {
			if err = w.relationsUnknown(ctx, users...); err != nil {
				break
			}
			_, err = w.Publisher.Publish(ctx, live.Event{Kind: live.Invalidated, Reason: "the timeline is read anew"}, users)
		}
		if err != nil {
			break
		}
		switch {
		case len(users) == size:
			p.After = users[len(users)-1]
		case p.Inboxes:
			return nil
		default:
			p = everybody{Inboxes: true}
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
	return queue.Unavailable(fmt.Errorf("forget all feeds: %w", err))
}

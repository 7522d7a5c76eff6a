package workers

import (
	"context"
	"fmt"

	"tideline/feed/job"
	"tideline/queue"
)

// basePage is how many replies and reposts one step of a BaseChanged job handles. A step is one
// transaction.
const basePage = 100

// baseWalk is the state of a BaseChanged job. Its JSON names must not change.
type baseWalk struct {
	Base  int64 `json:"base"`  // the post whose replies and reposts are handled, or the last one that NextBase looked at
	After int64 `json:"after"` // those up to this id are done
	// Told: the watchers of a conversation were told of the author's posts up to this id. AllTold: of
	// all.
	Told    int64 `json:"told,omitempty"`
	AllTold bool  `json:"allTold,omitempty"`
}

// authorStale handles an author who was hidden or is shown again. After the inboxes it turns to the
// replies, reposts and quotes of others that depend on the author's posts. A repetition enqueues their job
// again, which is harmless.
func (w *Workers) authorStale(ctx context.Context, j *queue.Job) error {
	var args job.Post
	if err := decode(j, &args, nil); err != nil {
		return err
	}
	if err := w.postGivenUp(ctx, j); err != nil {
		return err
	}
	if err := w.Feed.AuthorChanged(ctx, args.Author); err != nil {
		return queue.Unavailable(fmt.Errorf("look for replies and reposts: %w", err))
	}
	return nil
}

// baseChanged tells the clients that may show a reply, a repost or a quote that the post which it depends
// on was shown, hidden, deleted or changed. Reads need no job: they obey the rule at once. Each reply and repost
// gets a fan-out of its own, like one for an edit. A repost whose original is gone is deleted. If the
// payload has no post, all posts of the author are meant, and the watchers of a conversation with any of
// them are told first. After an edit, replies are left out.
func (w *Workers) baseChanged(ctx context.Context, j *queue.Job) error {
	var args job.Post
	var p baseWalk
	if err := decode(j, &args, &p); err != nil {
		return err
	}
	pace := j.GiveWay(ctx)
	for {
		if err := j.Confirm(ctx); err != nil {
			return err
		}
		pace()
		if args.Post == 0 && !p.AllTold {
			var err error
			if p.Told, err = w.tellOfAuthor(ctx, args.Author, p.Told); err != nil {
				return queue.Unavailable(fmt.Errorf("tell conversations of an author: %w", err))
			}
			p.AllTold = p.Told == 0
			if err := j.Checkpoint(ctx, p); err != nil {
				return err
			}
			continue
		}
		if p.After == 0 {
			base, found := args.Post, true
			if base == 0 {
				var err error
				if base, found, err = w.Visibility.Unchecked.NextBase(ctx, args.Author, p.Base); err != nil || base == 0 {
					return err
				}
			}
			p.Base = base
			if !found {
				if err := j.Checkpoint(ctx, p); err != nil {
					return err
				}
				continue
			}
		}
		last, err := w.Feed.TellDependents(ctx, p.Base, p.After, args, basePage)
		if err != nil {
			return queue.Unavailable(fmt.Errorf("tell of replies and reposts: %w", err))
		}
		if p.After = last; last == 0 && args.Post != 0 {
			return nil
		}
		if err := j.Checkpoint(ctx, p); err != nil {
			return err
		}
	}
}

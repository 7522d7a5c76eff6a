package workers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tideline/feed/visibility"
	"tideline/live"
)

// recheckFenced checks again the users whose relation to the author has changed since the job was
// enqueued. The fan-out may have given them the post, or taken it, because of the old relation.
func (f *fanOut) recheckFenced(ctx context.Context) error {
	author := f.args.Author
	var fenced []int64
	var whole bool
	err := f.w.Timelines.Masters.WithinLimit(ctx, func(ctx context.Context) (err error) {
		// Every attempt began after the job was enqueued.
		fenced, whole, err = f.w.Timelines.Fences.Fenced(ctx, author, f.job.ID, f.job.CreatedAt.Add(-maxClockSkew))
		return err
	})
	if err != nil {
		return f.reached(err) // the next attempt asks again
	}
	if !whole || f.progress.Unwatched {
		// Redis lost fences, or they were not watched. They may have named any active user.
		active, err := f.w.Timelines.Active.All(ctx)
		if err != nil {
			return f.reached(f.w.Timelines.Masters.MarkUnreached(ctx, err))
		}
		delete(active, author) // authors always keep their own posts
		fenced = slices.Collect(maps.Keys(active))
	}
	if len(fenced) == 0 {
		return nil
	}
	// The post may have changed since the round began.
	_, post, err := f.stored(ctx)
	if err != nil {
		return err
	}
	if visibility.Of(post) != f.progress.Of {
		return errPostChanged
	}
	for users := range slices.Chunk(fenced, f.w.PageSize) {
		if err := f.job.Confirm(ctx); err != nil {
			return err
		}
		if err := f.recheck(ctx, users); err != nil {
			return err
		}
	}
	return nil
}

// rechecks is how often recheck repeats its write if relations change meanwhile.
const rechecks = 5

// recheck makes the inboxes of the users agree with their relations to the author. It repeats until
// the relations are the same before and after the write, and fails after five writes.
func (f *fanOut) recheck(ctx context.Context, users []int64) error {
	post := f.args.Post
	gain, saw, err := f.whoSees(ctx, users)
	for range rechecks {
		if err != nil {
			return err
		}
		lose := slices.DeleteFunc(slices.Clone(users), func(user int64) bool {
			return contains(gain, user) || contains(saw, user)
		})
		// Reads already hide the post. These users lose it because the post changed, and were told
		// page by page. An older fan-out that was delayed may have put it back since.
		if err := f.reached(f.w.Timelines.Inboxes.Erase(ctx, []int64{post}, saw)); err != nil {
			return fmt.Errorf("erase post %d: %w", post, err)
		}
		// The others lose it because the relation changed. A client that has shown the post must
		// read its timeline again: the reconciler of that change may find nothing left to remove,
		// and then notifies nobody.
		if err := f.reached(f.w.Timelines.Inboxes.RemoveUnjournaled(ctx, []int64{post}, lose)); err != nil {
			return fmt.Errorf("remove post %d: %w", post, err)
		}
		if _, err := f.tell(ctx, live.JournalChanged, lose); err != nil {
			return err
		}
		if f.pushes {
			if _, err := f.w.Timelines.Inboxes.Deliver(ctx, post, gain); f.reached(err) != nil {
				return fmt.Errorf("deliver post %d: %w", post, err)
			}
		}
		before := gain
		// A relation that changes from here on has a job that writes later.
		if gain, saw, err = f.whoSees(ctx, users); err == nil && slices.Equal(before, gain) {
			return nil
		}
	}
	return fmt.Errorf("the relations of author %d keep changing", f.args.Author)
}

// whoSees returns the users to whose timelines the post belongs, and the users to whose timelines
// it no longer belongs because the post changed. Both are in ascending order.
func (f *fanOut) whoSees(ctx context.Context, users []int64) (sees, saw []int64, err error) {
	followers, err := f.w.Visibility.Followers.Among(ctx, f.author, f.change, users)
	for _, follower := range followers {
		switch {
		case follower.Sees:
			sees = append(sees, follower.ID)
		case follower.Saw:
			saw = append(saw, follower.ID)
		}
	}
	slices.Sort(sees)
	slices.Sort(saw)
	return sees, saw, err
}

// contains reports whether users, which is in ascending order, contains user.
func contains(users []int64, user int64) bool {
	_, found := slices.BinarySearch(users, user)
	return found
}

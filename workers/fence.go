package workers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"tideline/feed/visibility"
	"tideline/live"
)

// recheckFenced looks again at those users whose relation to the author changed
// while the post was on its way: the fan-out may have given them the post, or
// taken it, by what the relation was before.
func (f *fanOut) recheckFenced(ctx context.Context) error {
	author := f.args.Author
	var fenced []int64
	var whole bool
	err := f.w.Timelines.Masters().Try(ctx, func(ctx context.Context) (err error) {
		// No attempt began before the job did.
		fenced, whole, err = f.w.Timelines.Fenced(ctx, author, f.job.ID, f.job.CreatedAt.Add(-maxClockSkew))
		return err
	})
	if err != nil {
		return f.reached(err) // the next attempt asks
	}
	if !whole || f.progress.Unwatched {
		// Redis was wiped meanwhile. It may be anybody who has an inbox by now.
		active, err := f.w.Timelines.ActiveUsers(ctx)
		if err != nil {
			return f.reached(f.w.Timelines.Masters().Tolerate(ctx, err))
		}
		delete(active, author) // nobody takes authors their own posts
		fenced = slices.Collect(maps.Keys(active))
	}
	if len(fenced) == 0 {
		return nil
	}
	// What the round goes by was read before all its pages.
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

// rechecks is how often relations may change while a recheck writes what they were.
const rechecks = 5

// recheck makes the inboxes of users agree with their relations to the author,
// until these are the same before and after the write.
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
		// Reads hide the post already. The users who lose it by the change of the post
		// were told so, page by page; a fan-out that is behind may have put it back since.
		if err := f.reached(f.w.Timelines.Erase(ctx, []int64{post}, saw)); err != nil {
			return fmt.Errorf("erase post %d: %w", post, err)
		}
		// The others lose it by a change of the relation. A client that was shown it before
		// reads its timeline again: the reconciler of that change may find the inbox done,
		// and tell nobody.
		if err := f.reached(f.w.Timelines.RemoveUnjournaled(ctx, []int64{post}, lose)); err != nil {
			return fmt.Errorf("remove post %d: %w", post, err)
		}
		if _, err := f.tell(ctx, live.JournalChanged, lose); err != nil {
			return err
		}
		if f.pushes {
			if _, err := f.w.Timelines.Deliver(ctx, post, gain); f.reached(err) != nil {
				return fmt.Errorf("deliver post %d: %w", post, err)
			}
		}
		before := gain
		// A relation that changes from here on has a job that writes after this.
		if gain, saw, err = f.whoSees(ctx, users); err == nil && slices.Equal(before, gain) {
			return nil
		}
	}
	return fmt.Errorf("the relations of %d do not come to rest", f.args.Author)
}

// whoSees returns those of the users into whose timelines the post belongs, and those
// in whose timelines it no longer belongs because of the change of the post, both in
// ascending order.
func (f *fanOut) whoSees(ctx context.Context, users []int64) (sees, saw []int64, err error) {
	followers, err := f.w.Visibility.Among(ctx, f.author, f.change, users)
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

// contains reports whether the user is one of those in ascending order.
func contains(users []int64, user int64) bool {
	_, found := slices.BinarySearch(users, user)
	return found
}

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
	// No attempt began before the job did.
	fenced, whole, err := f.w.Timelines.Fenced(ctx, author, f.job.ID, f.job.CreatedAt.Add(-maxClockSkew))
	if err != nil {
		return err
	}
	if !whole {
		// Redis was wiped meanwhile. It may be anybody who has an inbox by now.
		active, err := f.w.Timelines.ActiveUsers(ctx)
		if err != nil {
			return err
		}
		delete(active, author) // nobody takes authors their own posts
		fenced = slices.Collect(maps.Keys(active))
	}
	for users := range slices.Chunk(fenced, f.w.PageSize) {
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
	gain, err := f.whoSees(ctx, users)
	for range rechecks {
		if err != nil {
			return err
		}
		lose := slices.DeleteFunc(slices.Clone(users), func(user int64) bool {
			_, sees := slices.BinarySearch(gain, user)
			return sees
		})
		// Reads hide the post already. A client that was shown it before is told that it
		// is gone: the reconciler of the changed relation may find the inbox done, and
		// tell nobody.
		if err := f.w.Timelines.WithdrawHeld(ctx, []int64{post}, lose); err != nil {
			return fmt.Errorf("remove post %d: %w", post, err)
		}
		if _, err := f.tell(ctx, live.JournalChanged, lose); err != nil {
			return err
		}
		if f.pushes {
			if _, err := f.w.Timelines.Deliver(ctx, post, gain); err != nil {
				return fmt.Errorf("deliver post %d: %w", post, err)
			}
		}
		before := gain
		// A relation that changes from here on has a job that writes after this.
		if gain, err = f.whoSees(ctx, users); err == nil && slices.Equal(before, gain) {
			return nil
		}
	}
	return fmt.Errorf("the relations of %d do not come to rest", f.args.Author)
}

// whoSees returns those of the users into whose timelines the post belongs, in
// ascending order.
func (f *fanOut) whoSees(ctx context.Context, users []int64) ([]int64, error) {
	followers, err := f.w.Visibility.Among(ctx, f.args.Author, visibility.PostChange{Current: f.change.Current}, users)
	var list []int64
	for _, follower := range followers {
		if follower.Sees {
			list = append(list, follower.ID)
		}
	}
	slices.Sort(list)
	return list, err
}

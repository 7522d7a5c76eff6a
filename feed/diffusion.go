package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tideline/ent"
	"tideline/ent/follow"
	"tideline/ent/predicate"
	"tideline/ent/user"
	"tideline/queue"
)

// How an author's posts travel (the column users.diffusion):
//
//	PUSH ──too many followers──▶ RISING ──every reader knows──▶ PULL
//	  ▲                             │                            │
//	  ├───────────too few───────────┘                        too few
//	  └──inboxes have what they missed── FALLING ◀───────────────┘
//
// Posts are pushed to inboxes in every mode but PULL, and merged by readers
// from the outbox in every mode but PUSH. In between both is done, and an entry
// found twice is shown once, so a crossing leaves no hole and no double.
//
// Readers keep the list of authors to merge for Config.MergedFor. RISING lasts far
// longer than that, so when pushing stops there is no reader left who does not
// merge.

const (
	// NeverPull, as Config.PullAbove, pushes every author's posts.
	NeverPull = -1
	// AlwaysPull, as Config.PullAbove, pushes nobody's.
	AlwaysPull = -2

	// maxMergedAuthors merged authors in all are not listed: readers pull from everybody
	// whom they follow.
	maxMergedAuthors = 2000
	// mergeAfterReturn is how much longer readers merge an author who is pushed again:
	// than any post is on its way, as a rule.
	mergeAfterReturn = 10 * time.Second
	// defaultMergeAll is the default of Config.MergeAll.
	defaultMergeAll = 200
	// rebalanceBatch is how many authors change mode in one turn of Rebalance.
	rebalanceBatch = 100
)

// mergedList is the list of authors whom readers merge, as of some seconds ago.
type mergedList struct {
	mu      sync.Mutex
	read    time.Time
	authors []int64
	listed  map[int64]time.Time // when each was last
}

// mergedAuthors is whom readers merge, as far as the list is used.
func (f *Feed) mergedAuthors(ctx context.Context) ([]int64, error) {
	f.merged.mu.Lock()
	defer f.merged.mu.Unlock()
	if now := f.now(); now.Sub(f.merged.read) > f.cfg.MergedListFor {
		authors, err := f.db.User.Query().Where(user.FanOutModeNEQ(user.FanOutModePUSH)).Limit(maxMergedAuthors).IDs(ctx)
		if err != nil {
			return nil, fmt.Errorf("read authors to merge: %w", err)
		}
		f.merged.read, f.merged.authors = now, f.merged.withRecentlyRemoved(authors, now)
	}
	return f.merged.authors, nil
}

// withRecentlyRemoved is the authors, and those who were among them a moment ago: what they
// posted last was found in the outbox, and may still be on its way to inboxes.
func (m *mergedList) withRecentlyRemoved(authors []int64, now time.Time) []int64 {
	if m.listed == nil {
		m.listed = map[int64]time.Time{}
	}
	for _, author := range authors {
		m.listed[author] = now
	}
	maps.DeleteFunc(m.listed, func(_ int64, at time.Time) bool { return now.Sub(at) > mergeAfterReturn })
	list := slices.Collect(maps.Keys(m.listed))
	return list[:min(len(list), maxMergedAuthors)]
}

// mergedFollowees is whom the viewer's reads merge; all is false when there are
// too many in all for a list of them.
func (f *Feed) mergedFollowees(ctx context.Context, viewer int64) (authors []int64, all bool, err error) {
	list, err := f.mergedAuthors(ctx)
	if err != nil {
		return nil, false, err
	}
	return f.mergedOf(ctx, viewer, list)
}

func (f *Feed) mergedOf(ctx context.Context, viewer int64, list []int64) (authors []int64, all bool, err error) {
	if f.cfg.PullAbove == AlwaysPull || len(list) == maxMergedAuthors {
		return nil, false, nil
	}
	if len(list) == 0 {
		return nil, true, nil
	}
	err = f.db.Follow.Query().Where(follow.FollowerID(viewer), f.among(follow.FieldFolloweeID, list)).
		Select(follow.FieldFolloweeID).Scan(ctx, &authors)
	return authors, true, wrap("read followees to merge", err)
}

// Pushes reports whether the author's new posts go to inboxes.
func Pushes(author *ent.User) bool { return author.FanOutMode != user.FanOutModePULL }

// Rebalance moves authors whose follower count has crossed the threshold a step
// on their way between push and pull, at most a hundred a step; a worker calls
// it again and again. An author comes back to push below four fifths of the
// threshold only, so that one near it does not flap. It costs one index range a
// step, however many users there are.
func (f *Feed) Rebalance(ctx context.Context) error {
	above, below := f.cfg.PullAbove, f.cfg.PullAbove*4/5
	switch f.cfg.PullAbove {
	case NeverPull:
		above, below = 1<<40, 1<<40
	case AlwaysPull:
		above, below = -1, -1
	}
	settled := f.now().Add(-f.cfg.PushAndPullFor).UnixMilli()
	for _, step := range []struct {
		from, to user.FanOutMode
		where    predicate.User
	}{
		{user.FanOutModePUSH_TO_PULL, user.FanOutModePUSH, user.FollowerCountLT(below)},
		{user.FanOutModePUSH_TO_PULL, user.FanOutModePULL, user.And(user.FollowerCountGT(above), user.FanOutModeSinceLTE(settled))},
		{user.FanOutModePULL, user.FanOutModePULL_TO_PUSH, user.FollowerCountLT(below)},
		{user.FanOutModePUSH, user.FanOutModePUSH_TO_PULL, user.FollowerCountGT(above)},
	} {
		authors, err := f.db.User.Query().Where(user.FanOutModeEQ(step.from), step.where).Limit(rebalanceBatch).IDs(ctx)
		if err != nil {
			return fmt.Errorf("find authors who cross the threshold: %w", err)
		}
		for _, author := range authors {
			if err := f.cross(ctx, author, step.from, step.to); err != nil {
				return fmt.Errorf("move %d from %s to %s: %w", author, step.from, step.to, err)
			}
		}
	}
	return nil
}

func (f *Feed) cross(ctx context.Context, author int64, from, to user.FanOutMode) error {
	return f.inTx(ctx, func(tx *ent.Tx) error {
		since := f.now().UnixMilli()
		n, err := tx.User.Update().Where(user.ID(author), user.FanOutModeEQ(from)).
			SetFanOutMode(to).SetFanOutModeSince(since).Save(ctx)
		if err != nil || n == 0 || to != user.FanOutModePULL_TO_PUSH {
			return err
		}
		return f.queue.Enqueue(ctx, tx, queue.Large, AuthorReturns, AuthorJob{Author: author, Since: since})
	})
}

// FinishReturnToPush ends an author's way back to push that began then: every inbox has what
// it missed. Of a later one it says nothing: an attempt that stalled, or a job
// that is done again, may come when the author has been pulled once more since.
//
// Cost: one statement.
func (f *Feed) FinishReturnToPush(ctx context.Context, j AuthorJob) error {
	err := f.db.User.Update().
		Where(user.ID(j.Author), user.FanOutModeEQ(user.FanOutModePULL_TO_PUSH), user.FanOutModeSince(j.Since)).
		SetFanOutMode(user.FanOutModePUSH).SetFanOutModeSince(f.now().UnixMilli()).Exec(ctx)
	return wrap("end the way back to push", err)
}

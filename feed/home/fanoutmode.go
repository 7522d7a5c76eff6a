package home

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/predicate"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/internal/errs"
	"tideline/queue"
)

// An author's fan-out mode (the column users.fan_out_mode) says how the author's posts reach
// timelines:
//
//	PUSH ──followers > threshold──▶ PUSH_TO_PULL ──after PushAndPullFor──▶ PULL
//	  ▲                                  │                                  │
//	  ├──followers < 4/5 of threshold────┘         followers < 4/5 of threshold
//	  └──inboxes are complete again──── PULL_TO_PUSH ◀──────────────────────┘
//
// Posts are pushed to inboxes in every mode except PULL, and readers merge the outbox in every
// mode except PUSH. In the two intermediate modes both happen, and a reader shows a post that it
// finds twice only once. So a change of mode neither loses nor repeats a post.
//
// Readers cache the list of merged authors for Policy.MergedListFor. PUSH_TO_PULL lasts far
// longer, so every reader merges the author by the time pushing stops.

const (
	// NeverPull, as Policy.PullAbove, pushes every author's posts.
	NeverPull = -1
	// AlwaysPull, as Policy.PullAbove, pushes no posts: readers merge all outboxes.
	AlwaysPull = -2

	// maxMergedAuthors is the longest list of merged authors that a process keeps. If there are
	// more, each reader asks SQL for the merged followees.
	maxMergedAuthors = 2000
	// mergeAfterReturn is how long readers still merge an author who has returned to PUSH. It is
	// longer than the usual time between a post's commit and its arrival in inboxes.
	mergeAfterReturn = 10 * time.Second
	// defaultMergeAll is the default of Policy.MergeAll.
	defaultMergeAll = 200
	// rebalanceBatch is how many authors one Rebalance moves each way.
	rebalanceBatch = 100
)

// FanOutModes moves authors between fan-out modes. It is safe for concurrent use.
type FanOutModes struct {
	db     *ent.Client
	queue  *queue.Queue
	now    func() time.Time
	policy Policy
}

// Pushes reports whether the author's new posts are pushed to inboxes.
func Pushes(author *ent.User) bool { return author.FanOutMode != user.FanOutModePULL }

// CrossThreshold moves the author one step between push and pull if author.FollowerCount has
// crossed the threshold. It is called at the end of each fan-out, because the mode of an author
// who does not post does not matter. An author returns to push only below four fifths of the
// threshold, so that an author near the threshold does not flap.
//
// Cost: none if the mode does not change; otherwise one statement, or a transaction of two.
func (m *FanOutModes) CrossThreshold(ctx context.Context, author *ent.User) error {
	above, below := m.policy.threshold()
	switch {
	case author.FanOutMode == user.FanOutModePUSH && author.FollowerCount > above:
		return m.changeMode(ctx, author.ID, user.FanOutModePUSH, user.FanOutModePUSH_TO_PULL)
	case author.FanOutMode == user.FanOutModePULL && author.FollowerCount < below:
		return m.changeMode(ctx, author.ID, user.FanOutModePULL, user.FanOutModePULL_TO_PUSH)
	}
	return nil
}

// threshold returns the follower count above which authors are pulled, and the one below which
// they are pushed again.
func (p *Policy) threshold() (above, below int) {
	switch p.PullAbove {
	case NeverPull:
		return 1 << 40, 1 << 40 // no count is above, and every count is below
	case AlwaysPull:
		return -1, -1 // every count is above, and no count is below
	}
	return p.PullAbove, p.PullAbove * 4 / 5
}

// Rebalance moves authors out of PUSH_TO_PULL: to PULL after Policy.PushAndPullFor, or back to
// PUSH if their follower count is below four fifths of the threshold. It moves at most
// rebalanceBatch authors each way. A worker calls it periodically.
//
// Cost: two index ranges, of the authors in PUSH_TO_PULL only, and a statement for each author moved.
func (m *FanOutModes) Rebalance(ctx context.Context) error {
	_, below := m.policy.threshold()
	pushedAndPulled := m.now().Add(-m.policy.PushAndPullFor).UnixMilli()
	for to, where := range map[user.FanOutMode]predicate.User{
		user.FanOutModePUSH: user.FollowerCountLT(below),
		user.FanOutModePULL: user.And(user.FollowerCountGTE(below), user.FanOutModeSinceLTE(pushedAndPulled)),
	} {
		authors, err := m.db.User.Query().Where(user.FanOutModeEQ(user.FanOutModePUSH_TO_PULL), where).Limit(rebalanceBatch).IDs(ctx)
		if err != nil {
			return fmt.Errorf("find authors on their way to pull: %w", err)
		}
		for _, author := range authors {
			if err := m.changeMode(ctx, author, user.FanOutModePUSH_TO_PULL, to); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *FanOutModes) changeMode(ctx context.Context, author int64, from, to user.FanOutMode) error {
	err := rows.InTx(ctx, m.db, func(tx *ent.Tx) error {
		since := m.now().UnixMilli()
		n, err := tx.User.Update().Where(user.ID(author), user.FanOutModeEQ(from)).
			SetFanOutMode(to).SetFanOutModeSince(since).Save(ctx)
		if err != nil || n == 0 || to != user.FanOutModePULL_TO_PUSH {
			return err
		}
		return m.queue.Enqueue(ctx, tx, queue.Large, job.AuthorReturns, job.Author{Author: author, Since: since})
	})
	return errs.Wrap(err, "move author %d from %s to %s", author, from, to)
}

// FinishReturnToPush moves an author from PULL_TO_PUSH to PUSH, once every inbox has the posts
// that it missed. It does nothing unless this is the return that began at j.Since: a job that
// stalled or is repeated may finish after the author has been in PULL again.
//
// Cost: one statement.
func (m *FanOutModes) FinishReturnToPush(ctx context.Context, j job.Author) error {
	err := m.db.User.Update().
		Where(user.ID(j.Author), user.FanOutModeEQ(user.FanOutModePULL_TO_PUSH), user.FanOutModeSince(j.Since)).
		SetFanOutMode(user.FanOutModePUSH).SetFanOutModeSince(m.now().UnixMilli()).Exec(ctx)
	return errs.Wrap(err, "end the return to push")
}

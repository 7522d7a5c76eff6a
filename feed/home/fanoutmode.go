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
	"tideline/queue"
)

// An author's fan-out mode (the column users.fan_out_mode) says how the posts
// travel:
//
//	PUSH ──too many followers──▶ PUSH_TO_PULL ──every reader knows──▶ PULL
//	  ▲                               │                                │
//	  ├────────────too few────────────┘                            too few
//	  └──inboxes have what they missed── PULL_TO_PUSH ◀────────────────┘
//
// Posts are pushed to inboxes in every mode but PULL, and readers merge the outbox
// in every mode but PUSH. In the two modes between them both is done. An entry that
// is found twice is shown once, so a change of mode leaves no hole and no double.
//
// Readers cache the list of merged authors for Policy.MergedListFor. PUSH_TO_PULL
// lasts far longer than that, so every reader merges when pushing stops.

const (
	// NeverPull, as Policy.PullAbove, pushes every author's posts.
	NeverPull = -1
	// AlwaysPull, as Policy.PullAbove, pushes nobody's.
	AlwaysPull = -2

	// maxMergedAuthors is how many merged authors are listed. When there are more,
	// readers pull from all their followees.
	maxMergedAuthors = 2000
	// mergeAfterReturn is how much longer readers merge an author who is pushed
	// again. It is longer than a post is usually on its way.
	mergeAfterReturn = 10 * time.Second
	// defaultMergeAll is the default of Policy.MergeAll.
	defaultMergeAll = 200
	// rebalanceBatch is how many authors change mode in one turn of Rebalance.
	rebalanceBatch = 100
)

// fanOutModes moves authors from mode to mode.
type fanOutModes struct {
	db     *ent.Client
	queue  *queue.Queue
	now    func() time.Time
	policy Policy
}

// Pushes reports whether the author's new posts go to inboxes.
func Pushes(author *ent.User) bool { return author.FanOutMode != user.FanOutModePULL }

// Rebalance moves authors whose follower count has crossed the threshold one step
// between push and pull, at most a hundred in a step. A worker calls it again and
// again. An author returns to push only below four fifths of the threshold, so that
// an author near it does not flap.
//
// Cost: one index range a step, however many users there are.
func (m *fanOutModes) Rebalance(ctx context.Context) error {
	above, below := m.policy.PullAbove, m.policy.PullAbove*4/5
	switch m.policy.PullAbove {
	case NeverPull:
		above, below = 1<<40, 1<<40
	case AlwaysPull:
		above, below = -1, -1
	}
	pushedAndPulled := m.now().Add(-m.policy.PushAndPullFor).UnixMilli()
	for _, step := range []struct {
		from, to user.FanOutMode
		where    predicate.User
	}{
		{user.FanOutModePUSH_TO_PULL, user.FanOutModePUSH, user.FollowerCountLT(below)},
		{user.FanOutModePUSH_TO_PULL, user.FanOutModePULL, user.And(user.FollowerCountGT(above), user.FanOutModeSinceLTE(pushedAndPulled))},
		{user.FanOutModePULL, user.FanOutModePULL_TO_PUSH, user.FollowerCountLT(below)},
		{user.FanOutModePUSH, user.FanOutModePUSH_TO_PULL, user.FollowerCountGT(above)},
	} {
		authors, err := m.db.User.Query().Where(user.FanOutModeEQ(step.from), step.where).Limit(rebalanceBatch).IDs(ctx)
		if err != nil {
			return fmt.Errorf("find authors who cross the threshold: %w", err)
		}
		for _, author := range authors {
			if err := m.changeMode(ctx, author, step.from, step.to); err != nil {
				return fmt.Errorf("move %d from %s to %s: %w", author, step.from, step.to, err)
			}
		}
	}
	return nil
}

func (m *fanOutModes) changeMode(ctx context.Context, author int64, from, to user.FanOutMode) error {
	return rows.InTx(ctx, m.db, func(tx *ent.Tx) error {
		since := m.now().UnixMilli()
		n, err := tx.User.Update().Where(user.ID(author), user.FanOutModeEQ(from)).
			SetFanOutMode(to).SetFanOutModeSince(since).Save(ctx)
		if err != nil || n == 0 || to != user.FanOutModePULL_TO_PUSH {
			return err
		}
		return m.queue.Enqueue(ctx, tx, queue.Large, job.AuthorReturns, job.Author{Author: author, Since: since})
	})
}

// FinishReturnToPush ends the return to push of an author that began at since:
// every inbox has what it missed. It does not end a later return: an attempt that
// stalled, or a job that is done again, may finish after the author was pulled once
// more.
//
// Cost: one statement.
func (m *fanOutModes) FinishReturnToPush(ctx context.Context, j job.Author) error {
	err := m.db.User.Update().
		Where(user.ID(j.Author), user.FanOutModeEQ(user.FanOutModePULL_TO_PUSH), user.FanOutModeSince(j.Since)).
		SetFanOutMode(user.FanOutModePUSH).SetFanOutModeSince(m.now().UnixMilli()).Exec(ctx)
	return rows.Wrap("end the return to push", err)
}

package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/mute"
	"tideline/ent/predicate"
	"tideline/ent/user"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/errs"
	"tideline/queue"
)

// pair holds two users in a transaction. The pair and the viewer's row are locked, so no other
// transaction changes a relation between the two until this one ends. The other user's row is not
// locked, because many users may follow the same user at once. A change of mutes locks nothing.
type pair struct {
	tx            *ent.Tx
	dialect       string
	viewer, other *ent.User
	webhooks      *webhook.Outbox
	// requests collects the users whose list of follow requests changes.
	requests *[]int64
}

// relationChange describes a change of the viewer's relation to another user.
type relationChange struct {
	// already reports whether the relation is already as wanted. In that case nothing is locked.
	// Optional.
	already func(visibility.Relation) bool
	// unnoticed marks a change that affects only the viewer's timeline. It locks nothing, and the
	// other user is not told.
	unnoticed bool
	// givesAccess makes the change fail while the other user is hidden. A change that takes
	// access away also works on a hidden user who may be restored, so that the restored user does
	// not regain that access.
	givesAccess bool
	// make makes the change in the transaction of the pair and reports whether it changed
	// anything that feeds depend on.
	make func(p pair) (bool, error)
}

// change makes a change in a transaction that holds the locks described at pair. If it changed
// anything, it brings the viewer's feeds up to date before it returns; workers update the other
// user's feeds. It returns the other user after the change, with only the id if that user is
// hidden.
//
// Deadlocks: the pair is locked before the viewer. A transaction that locks only rows of users,
// in the order of their ids, never waits for a pair. A change of mutes takes no lock, because no
// counter depends on it and its row is unique.
//
// Cost of every operation that changes a relation: two short queries if nothing changes.
// Otherwise one short transaction, a job, and home.Sync.Inbox for the viewer.
func (f *Feed) change(ctx context.Context, v session.Viewer, other int64, c relationChange) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if v.ID == other {
		return nil, refusal.New(refusal.Yourself, "That is yourself.").In("userId")
	}
	if c.already != nil {
		relations, err := f.cfg.Visibility.Relations(ctx, v.ID, []int64{other})
		if err != nil {
			return nil, err
		}
		if c.already(relations[other]) {
			return f.otherUser(ctx, other, c.givesAccess)
		}
	}
	j := job.Relation{Users: [2]int64{v.ID, other}, First: c.unnoticed, Change: rand.Int64()}
	changed := false
	var requests []int64
	err := rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		requests = nil // the transaction may run twice
		p, err := f.pair(ctx, tx, v.ID, other, !c.unnoticed)
		if err != nil {
			return err
		}
		p.requests = &requests
		if p.viewer.Hidden {
			return refusal.ErrSignIn
		}
		if err := mayRelate(ctx, tx.HiddenUser, p.other, c.givesAccess); err != nil {
			return err
		}
		if changed, err = c.make(p); err != nil || !changed {
			return err
		}
		return f.cfg.Queue.Enqueue(ctx, tx, queue.Relations, job.RelationChanged, j)
	})
	if c.unnoticed && ent.IsConstraintError(err) { // a concurrent call came first
		changed, err = false, nil
	}
	if changed { // also if it is unknown whether the commit succeeded
		f.cfg.Visibility.VisibilityReduced()
	}
	if err != nil {
		return nil, err
	}
	for _, target := range requests {
		f.cfg.Home.Sync.TellRequests(ctx, target)
	}
	if changed {
		f.cfg.Home.Own.SyncInbox(ctx, v.ID, other, j.Change)
	}
	return f.otherUser(ctx, other, c.givesAccess)
}

// mayRelate returns NotFound if the other user is hidden, unless the change gives no access and
// the user may be restored.
func mayRelate(ctx context.Context, hidden *ent.HiddenUserClient, other *ent.User, givesAccess bool) error {
	if !other.Hidden {
		return nil
	}
	returns, err := rows.MayReturn(ctx, hidden, other.ID)
	if err == nil && (givesAccess || !returns) {
		err = refusal.ErrNoSuchUser
	}
	return err
}

// pair reads the two users. If lock is true, it locks the pair and the viewer's row. Error:
// NotFound.
func (f *Feed) pair(ctx context.Context, tx *ent.Tx, viewer, other int64, lock bool) (p pair, err error) {
	if lock {
		if err := rows.LockPair(ctx, tx, f.cfg.Dialect, viewer, other); err != nil {
			return p, err
		}
		if _, err := tx.User.Query().Where(user.ID(viewer), rows.ForUpdate).IDs(ctx); err != nil {
			return p, fmt.Errorf("lock viewer: %w", err)
		}
	}
	users, err := tx.User.Query().Where(user.IDIn(viewer, other)).All(ctx)
	if err != nil {
		return p, fmt.Errorf("read users: %w", err)
	}
	if len(users) != 2 {
		return p, refusal.ErrNoSuchUser
	}
	if users[0].ID != viewer {
		slices.Reverse(users)
	}
	return pair{tx, f.cfg.Dialect, users[0], users[1], f.cfg.Webhooks, new([]int64)}, nil
}

// otherUser returns the user after a change. For a hidden user, it returns only the id and the
// creation time that the id contains.
func (f *Feed) otherUser(ctx context.Context, id int64, givesAccess bool) (*ent.User, error) {
	u, err := f.cfg.DB.User.Query().Where(user.ID(id), rows.WithFollows).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	if err := mayRelate(ctx, f.cfg.DB.HiddenUser, u, givesAccess); err != nil {
		return nil, err
	}
	if u.Hidden {
		return &ent.User{ID: id, CreatedAt: ids.TimeOf(id), Data: new(ent.NoData)}, nil
	}
	return u, nil
}

// Follow makes the viewer follow other, or sends a follow request if other approves followers.
// Repeating the call changes nothing. Errors: Unauthenticated, NotFound; BadInput for oneself;
// Forbidden if one of the two blocks the other.
//
// Cost: as change.
func (f *Feed) Follow(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:     func(r visibility.Relation) bool { return r.Has(visibility.Following) },
		givesAccess: true,
		make: func(p pair) (bool, error) {
			blocked, err := p.tx.Block.Query().Where(blockBetween(v.ID, other)).Exist(ctx)
			if err != nil {
				return false, fmt.Errorf("look for a block: %w", err)
			}
			if blocked {
				return false, refusal.New(refusal.CannotFollow, "You cannot follow this user.")
			}
			follows, err := p.follows(ctx, v.ID, other)
			if err != nil || follows {
				return false, err
			}
			if !p.other.ApprovesFollowers {
				return true, p.follow(ctx, p.viewer, p.other)
			}
			return false, p.ask(ctx)
		},
	})
}

// ask adds the viewer's request to follow the other user.
func (p pair) ask(ctx context.Context) error {
	if p.webhooks.Wanted() {
		asked, err := p.tx.FollowRequest.Query().Where(followrequest.RequesterID(p.viewer.ID), followrequest.TargetID(p.other.ID)).Exist(ctx)
		if err != nil || asked {
			return errs.Wrap(err, "look for a follow request")
		}
	}
	err := p.tx.FollowRequest.Create().SetRequesterID(p.viewer.ID).SetTargetID(p.other.ID).
		OnConflictColumns(followrequest.FieldRequesterID, followrequest.FieldTargetID).Ignore().Exec(ctx)
	if err != nil {
		return fmt.Errorf("ask to follow: %w", err)
	}
	*p.requests = append(*p.requests, p.other.ID)
	return p.webhooks.Follow(ctx, p.tx, webhook.FollowRequested, p.viewer, p.other)
}

// follow inserts the follow, updates the counters, and deletes the follow request.
func (p pair) follow(ctx context.Context, follower, followee *ent.User) error {
	if _, err := p.deleteRequest(ctx, follower.ID, followee.ID); err != nil {
		return err
	}
	if err := p.tx.Follow.Create().SetFollowerID(follower.ID).SetFolloweeID(followee.ID).Exec(ctx); err != nil {
		return fmt.Errorf("create follow: %w", err)
	}
	if err := p.webhooks.Follow(ctx, p.tx, webhook.FollowCreated, follower, followee); err != nil {
		return err
	}
	return p.count(ctx, follower, followee, 1)
}

// unfollow deletes the follow and the follow request, and reports whether there was a follow.
func (p pair) unfollow(ctx context.Context, follower, followee *ent.User) (bool, error) {
	asked, err := p.deleteRequest(ctx, follower.ID, followee.ID)
	if err != nil {
		return false, err
	}
	n, err := p.tx.Follow.Delete().Where(follow.FollowerID(follower.ID), follow.FolloweeID(followee.ID)).Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("delete follow: %w", err)
	}
	if asked || n > 0 {
		err = p.webhooks.Follow(ctx, p.tx, webhook.FollowDeleted, follower, followee)
	}
	if err == nil && n > 0 {
		err = p.count(ctx, follower, followee, -1)
	}
	return n > 0, err
}

// count updates the counters of a follow. It must come last in the transaction, because it may
// lock the other user's row.
func (p pair) count(ctx context.Context, follower, followee *ent.User, n int) error {
	if err := rows.Following.Add(ctx, p.tx, p.dialect, follower.ID, n); err != nil {
		return fmt.Errorf("count following: %w", err)
	}
	return errs.Wrap(rows.Followers.Add(ctx, p.tx, p.dialect, followee.ID, n), "count followers")
}

// Unfollow ends the viewer's follow of other, or withdraws the follow request. Errors:
// Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Unfollow(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return r&(visibility.Following|visibility.Requested) == 0 },
		make: func(p pair) (bool, error) {
			return p.unfollow(ctx, p.viewer, p.other)
		},
	})
}

func (p pair) deleteRequest(ctx context.Context, requester, target int64) (bool, error) {
	n, err := p.tx.FollowRequest.Delete().
		Where(followrequest.RequesterID(requester), followrequest.TargetID(target)).Exec(ctx)
	if err != nil {
		return false, fmt.Errorf("delete follow request: %w", err)
	}
	if n > 0 {
		*p.requests = append(*p.requests, target)
	}
	return n > 0, nil
}

// follows reports whether one user follows another.
func (p pair) follows(ctx context.Context, follower, followee int64) (bool, error) {
	return p.tx.Follow.Query().Where(follow.FollowerID(follower), follow.FolloweeID(followee)).Exist(ctx)
}

// AcceptFollower accepts other's request to follow the viewer. Accepting a follower again changes
// nothing. Errors: Unauthenticated, BadInput; NotFound if there is no request.
//
// Cost: as change.
func (f *Feed) AcceptFollower(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{givesAccess: true, make: func(p pair) (bool, error) {
		asked, err := p.deleteRequest(ctx, other, v.ID)
		if err != nil {
			return false, err
		}
		if asked {
			return true, p.follow(ctx, p.other, p.viewer)
		}
		follows, err := p.follows(ctx, other, v.ID)
		if err == nil && !follows {
			err = refusal.New(refusal.NoSuchRequest, "This user has not asked to follow you.")
		}
		return false, err
	},
	})
}

// RejectFollower rejects other's request to follow the viewer. The other user is not told. Without a
// request it changes nothing. Errors: Unauthenticated, BadInput; NotFound if other already follows the
// viewer, because only RemoveFollower ends that.
//
// Cost: as change.
func (f *Feed) RejectFollower(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{make: func(p pair) (bool, error) {
		asked, err := p.deleteRequest(ctx, other, v.ID)
		if err != nil {
			return false, err
		}
		if !asked {
			follows, err := p.follows(ctx, other, v.ID)
			if err == nil && follows {
				err = refusal.New(refusal.NoSuchRequest, "This user already follows you.")
			}
			return false, err
		}
		return false, p.webhooks.Follow(ctx, p.tx, webhook.FollowDeleted, p.other, p.viewer)
	},
	})
}

// RemoveFollower ends other's follow of the viewer. The other user is not told, and may follow
// again. It changes nothing if other does not follow the viewer. Errors: Unauthenticated,
// NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) RemoveFollower(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return !r.Has(visibility.FollowedBy) },
		make: func(p pair) (bool, error) {
			return p.unfollow(ctx, p.other, p.viewer)
		},
	})
}

// Block ends follows and follow requests in both directions and hides the posts of the two users
// from each other until Unblock. Errors: Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Block(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return r.Has(visibility.Blocking) },
		make: func(p pair) (bool, error) {
			blocks, err := p.tx.Block.Query().Where(block.BlockerID(v.ID), block.BlockedID(other)).Exist(ctx)
			if err != nil || blocks {
				return false, err
			}
			if err := p.tx.Block.Create().SetBlockerID(v.ID).SetBlockedID(other).Exec(ctx); err != nil {
				return false, fmt.Errorf("create block: %w", err)
			}
			for _, way := range [][2]*ent.User{{p.viewer, p.other}, {p.other, p.viewer}} {
				if _, err := p.unfollow(ctx, way[0], way[1]); err != nil {
					return false, err
				}
			}
			return true, nil
		},
	})
}

// Unblock removes the viewer's block. It does not restore follows. Errors: Unauthenticated,
// NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Unblock(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return !r.Has(visibility.Blocking) },
		make: func(p pair) (bool, error) {
			n, err := p.tx.Block.Delete().Where(block.BlockerID(v.ID), block.BlockedID(other)).Exec(ctx)
			return n > 0, err // no follow returns, but conversations and reposts may show the other's posts again
		},
	})
}

// Mute removes other's posts from the viewer's timeline. The other user is not told. Errors:
// Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Mute(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:   func(r visibility.Relation) bool { return r.Has(visibility.Muting) },
		unnoticed: true,
		make: func(p pair) (bool, error) {
			mutes, err := p.tx.Mute.Query().Where(mute.MuterID(v.ID), mute.MutedID(other)).Exist(ctx)
			if err != nil || mutes {
				return false, err
			}
			return true, p.tx.Mute.Create().SetMuterID(v.ID).SetMutedID(other).Exec(ctx)
		},
	})
}

// Unmute shows other's posts in the viewer's timeline again. Errors: Unauthenticated, NotFound,
// BadInput.
//
// Cost: as change.
func (f *Feed) Unmute(ctx context.Context, v session.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:   func(r visibility.Relation) bool { return !r.Has(visibility.Muting) },
		unnoticed: true,
		make: func(p pair) (bool, error) {
			n, err := p.tx.Mute.Delete().Where(mute.MuterID(v.ID), mute.MutedID(other)).Exec(ctx)
			return n > 0, err
		},
	})
}

// blockBetween matches a block between the two users in either direction.
func blockBetween(a, b int64) predicate.Block {
	return block.Or(
		block.And(block.BlockerID(a), block.BlockedID(b)),
		block.And(block.BlockerID(b), block.BlockedID(a)),
	)
}

// Relations returns the viewer's relation to each of the others, in their order. An entry is nil
// if the viewer is anonymous, and zero for the viewer's own id.
//
// Cost: one query with seven index look-ups for each user.
func (f *Feed) Relations(ctx context.Context, v session.Viewer, others []int64) ([]*visibility.Relation, error) {
	list := make([]*visibility.Relation, len(others))
	if v.ID == 0 {
		return list, nil
	}
	found, err := f.cfg.Visibility.Relations(ctx, v.ID, others)
	if err != nil {
		return nil, err
	}
	for i, id := range others {
		list[i] = new(found[id])
	}
	return list, nil
}

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
	"tideline/feed/account"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/queue"
)

// pair is two users in a transaction. Unless mutes are changed, nobody else changes a
// relation between them until it ends: the pair is locked, and so is the viewer's row, but
// not the other's, whom many may follow at the same time.
type pair struct {
	tx            *ent.Tx
	dialect       string
	viewer, other *ent.User
	webhooks      *webhook.Outbox
	// requests collects the users whose list of follow requests the change makes another.
	requests *[]int64
}

// relationChange is a change of how the viewer stands to another user.
type relationChange struct {
	// already reports that a relation is as it would be made: then nothing is locked.
	// Optional.
	already func(visibility.Relation) bool
	// unnoticed says that only the viewer's timeline depends on the change: nothing is
	// locked, done, or told, to the other.
	unnoticed bool
	// givesAccess refuses the change while nobody sees the other user. Every other change
	// also works on a user who is hidden and may come back: otherwise the user would come
	// back with access that the viewer wanted to take away.
	givesAccess bool
	// make makes the change, in the transaction of the pair, and reports whether there
	// was anything to change.
	make func(p pair) (bool, error)
}

// change makes the change of the locked pair and, when that changed something, has both
// users' feeds agree with it: the viewer's before change returns, the other's
// by the workers. It returns the other user as change left it; of a user whom nobody sees,
// only the id.
//
// The pair is locked before the viewer, so that no two changes wait for each other; what
// locks rows of users alone, in the order of ids, never waits for a pair. A change of mutes
// takes no lock: no counter depends on it, and its row is unique.
//
// Cost, of all that change a relation: two short queries if nothing changes. Otherwise
// one short transaction, a job, and for the viewer that of home.SyncInbox.
func (f *Feed) change(ctx context.Context, v account.Viewer, other int64, c relationChange) (*ent.User, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if v.ID == other {
		return nil, refusal.New(refusal.Yourself, "That is yourself.").In("userId")
	}
	if c.already != nil {
		relations, err := f.posts.Relations(ctx, v.ID, []int64{other})
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
	err := rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		requests = nil // the transaction may be tried again
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
	if changed { // also if nobody knows whether the commit succeeded
		f.posts.Narrowed()
	}
	if err != nil {
		return nil, err
	}
	for _, target := range requests {
		f.home.TellRequests(ctx, target)
	}
	if changed {
		f.home.SyncOwnInbox(ctx, v.ID, other, j.Change)
	}
	return f.otherUser(ctx, other, c.givesAccess)
}

// mayRelate refuses a change of the relation to a user whom nobody sees, unless it gives no
// access and the user may come back. Error: NotFound.
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

// pair reads the two users, and locks what pair says. Error: NotFound.
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

// otherUser returns the user after a change. Of a user whom nobody sees it returns the id
// and the time that is part of the id.
func (f *Feed) otherUser(ctx context.Context, id int64, givesAccess bool) (*ent.User, error) {
	u, err := f.db.User.Query().Where(user.ID(id), rows.WithFollows).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchUser
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	if err := mayRelate(ctx, f.db.HiddenUser, u, givesAccess); err != nil {
		return nil, err
	}
	if u.Hidden {
		return &ent.User{ID: id, CreatedAt: ids.TimeOf(id), Data: new(ent.NoData)}, nil
	}
	return u, nil
}

// Follow makes the viewer follow other, or ask to where other approves
// followers. Doing it again changes nothing. Errors: Unauthenticated,
// NotFound, BadInput for oneself, Forbidden when either blocks the other.
//
// Cost: as change.
func (f *Feed) Follow(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:     func(r visibility.Relation) bool { return r.Following },
		givesAccess: true,
		make: func(p pair) (bool, error) {
			blocked, err := p.tx.Block.Query().Where(blockBetween(v.ID, other)).Exist(ctx)
			if err != nil {
				return false, fmt.Errorf("look for a block: %w", err)
			}
			if blocked {
				return false, refusal.New(refusal.CannotFollow, "You cannot follow this user.")
			}
			follows, err := p.tx.Follow.Query().Where(follow.FollowerID(v.ID), follow.FolloweeID(other)).Exist(ctx)
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

// ask adds the viewer's request to follow other.
func (p pair) ask(ctx context.Context) error {
	if p.webhooks.Wanted() {
		asked, err := p.tx.FollowRequest.Query().Where(followrequest.RequesterID(p.viewer.ID), followrequest.TargetID(p.other.ID)).Exist(ctx)
		if err != nil || asked {
			return rows.Wrap("look for a follow request", err)
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

// follow adds the edge and counts it; a request for it has served its purpose.
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

// unfollow takes the edge away, or the request for it, and reports whether there was an edge.
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

// count counts a follow. The two are the viewer, whose row is locked, and the other, whom it
// may lock: it comes last.
func (p pair) count(ctx context.Context, follower, followee *ent.User, n int) error {
	if err := rows.Following.Add(ctx, p.tx, p.dialect, follower.ID, n); err != nil {
		return fmt.Errorf("count following: %w", err)
	}
	return rows.Wrap("count followers", rows.Followers.Add(ctx, p.tx, p.dialect, followee.ID, n))
}

// Unfollow ends the viewer's follow of other, or takes back the request for
// it. Errors: Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Unfollow(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return !r.Following && !r.Requested },
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

// AcceptFollower lets other, who asked, follow the viewer. Accepting a follower
// again changes nothing. Errors: Unauthenticated, BadInput, NotFound when other
// did not ask.
//
// Cost: as change.
func (f *Feed) AcceptFollower(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{givesAccess: true, make: func(p pair) (bool, error) {
		asked, err := p.deleteRequest(ctx, other, v.ID)
		if err != nil {
			return false, err
		}
		if asked {
			return true, p.follow(ctx, p.other, p.viewer)
		}
		follows, err := p.tx.Follow.Query().Where(follow.FollowerID(other), follow.FolloweeID(v.ID)).Exist(ctx)
		if err == nil && !follows {
			err = refusal.New(refusal.NoSuchRequest, "This user has not asked to follow you.")
		}
		return false, err
	},
	})
}

// RejectFollower refuses other's request to follow the viewer; other is not
// told. Errors: Unauthenticated, BadInput, NotFound when other did not ask.
//
// Cost: as change.
func (f *Feed) RejectFollower(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{make: func(p pair) (bool, error) {
		asked, err := p.deleteRequest(ctx, other, v.ID)
		if err != nil {
			return false, err
		}
		if !asked {
			return false, refusal.New(refusal.NoSuchRequest, "This user has not asked to follow you.")
		}
		return false, p.webhooks.Follow(ctx, p.tx, webhook.FollowDeleted, p.other, p.viewer)
	},
	})
}

// RemoveFollower ends other's follow of the viewer; other is not told, and may follow again.
// It changes nothing where other does not follow. Errors: Unauthenticated, NotFound,
// BadInput.
//
// Cost: as change.
func (f *Feed) RemoveFollower(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return !r.FollowedBy },
		make: func(p pair) (bool, error) {
			return p.unfollow(ctx, p.other, p.viewer)
		},
	})
}

// Block ends follows and requests both ways and keeps the two from each other's
// posts until Unblock. Errors: Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Block(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return r.Blocking },
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

// Unblock takes the viewer's block back; follows do not come back with it.
// Errors: Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Unblock(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already: func(r visibility.Relation) bool { return !r.Blocking },
		make: func(p pair) (bool, error) {
			_, err := p.tx.Block.Delete().Where(block.BlockerID(v.ID), block.BlockedID(other)).Exec(ctx)
			return false, err
		},
	})
}

// Mute keeps other's posts out of the viewer's timeline; other is not told.
// Errors: Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Mute(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:   func(r visibility.Relation) bool { return r.Muting },
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

// Unmute brings other's posts back into the viewer's timeline. Errors:
// Unauthenticated, NotFound, BadInput.
//
// Cost: as change.
func (f *Feed) Unmute(ctx context.Context, v account.Viewer, other int64) (*ent.User, error) {
	return f.change(ctx, v, other, relationChange{
		already:   func(r visibility.Relation) bool { return !r.Muting },
		unnoticed: true,
		make: func(p pair) (bool, error) {
			n, err := p.tx.Mute.Delete().Where(mute.MuterID(v.ID), mute.MutedID(other)).Exec(ctx)
			return n > 0, err
		},
	})
}

// blockBetween matches a block between the two, whoever blocked.
func blockBetween(a, b int64) predicate.Block {
	return block.Or(
		block.And(block.BlockerID(a), block.BlockedID(b)),
		block.And(block.BlockerID(b), block.BlockedID(a)),
	)
}

// Relations is how the viewer stands to each of the others, in their order. An
// item is nil for an anonymous viewer, and zero for the viewer's own id.
//
// Cost: one query of six index look-ups a user.
func (f *Feed) Relations(ctx context.Context, v account.Viewer, others []int64) ([]*visibility.Relation, error) {
	list := make([]*visibility.Relation, len(others))
	if v.ID == 0 {
		return list, nil
	}
	found, err := f.posts.Relations(ctx, v.ID, others)
	if err != nil {
		return nil, err
	}
	for i, id := range others {
		r := found[id]
		list[i] = &r
	}
	return list, nil
}

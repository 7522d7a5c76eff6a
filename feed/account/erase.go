package account

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/delivery"
	"tideline/ent/follow"
	"tideline/ent/followrequest"
	"tideline/ent/hiddenuser"
	"tideline/ent/idempotencykey"
	"tideline/ent/job"
	"tideline/ent/like"
	"tideline/ent/mute"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/postversion"
	"tideline/ent/predicate"
	"tideline/ent/readmarker"
	"tideline/ent/report"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/ent/webhookdelivery"
	"tideline/feed/internal/rows"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

const (
	// erasePage is the number of rows that one statement deletes if counters or posts of other
	// users depend on them. eraseMany is the number for all other rows.
	erasePage = 500
	eraseMany = 5000
)

// tracesFor is the time between the deletion of the user's row and the search for traces. All
// Redis keys that name the user and are not deleted before expire within that time; the
// longest-lived are the sets of fences, which expire after two hours. During that time HiddenUser keeps a row of the
// user in state GONE.
const tracesFor = 3 * time.Hour

// ErrStillInUse says that the user cannot be deleted yet, because jobs about the user are
// outstanding.
var ErrStillInUse = errors.New("jobs about the user are still to be done")

// Erasure deletes the data of one user from SQL, in pages. Each statement looks for the rows that
// are left, so a new attempt continues where the last one stopped.
type Erasure struct {
	db   *ent.Client
	user int64
	now  func() time.Time
	// Forget is called with each page of the user's followers before their follows are deleted.
	// It drops their inboxes, which may hold posts of the user.
	Forget func(ctx context.Context, followers []int64) error
	// Pace is called between two pages. An error of Pace ends the erasure.
	Pace func(ctx context.Context) error
}

// BeginErasure returns the Erasure of a user in state DELETING. It returns nil if the user is not
// in that state, because the deletion has already ended.
//
// Cost: one look-up by primary key.
func BeginErasure(ctx context.Context, db *ent.Client, id int64, now func() time.Time) (*Erasure, error) {
	found, err := db.HiddenUser.Query().Where(hiddenuser.ID(id), hiddenuser.StateEQ(hiddenuser.StateDELETING)).Exist(ctx)
	if err != nil || !found {
		return nil, errs.Wrap(err, "find user to delete")
	}
	return &Erasure{db: db, user: id, now: now}, nil
}

// Run deletes the user's data and then the user. The parameter ofJob is the id of the job that
// calls it. Error: ErrStillInUse while any other job names the user: a fan-out of the user's
// posts could put posts back into inboxes that have been cleared.
//
// Cost: one statement or short transaction for each page of rows.
func (e *Erasure) Run(ctx context.Context, ofJob int64) error {
	for {
		busy, err := e.inUse(ctx, e.db.Job, ofJob)
		if err != nil {
			return err
		}
		if busy {
			return ErrStillInUse
		}
		for _, step := range []func(context.Context) (int, error){
			e.likes, e.posts, e.replies, e.followers, e.followees, e.others,
		} {
			for n := 1; n > 0; {
				if n, err = step(ctx); err != nil {
					return err
				}
				if err := e.Pace(ctx); err != nil {
					return err
				}
			}
		}
		done, err := e.last(ctx, ofJob)
		if done || err != nil {
			return err
		}
	}
}

// inUse reports whether an outstanding job other than this one names the user. It reads all jobs,
// of which there are few unless workers are behind.
func (e *Erasure) inUse(ctx context.Context, jobs *ent.JobClient, but int64) (bool, error) {
	found, err := jobs.Query().Where(job.IDNEQ(but), job.Dead(false), e.named(job.FieldPayload)).Exist(ctx)
	return found, errs.Wrap(err, "find jobs about the user")
}

// named matches jobs whose column contains the digits of the user's id. LIKE reads every job. It also
// matches a longer number with the same digits: then the erasure waits for a job about somebody else, or
// deletes one that was given up. Ids have sixteen digits or more, so that is as good as never.
func (e *Erasure) named(column string) predicate.Job {
	return func(s *sql.Selector) {
		s.Where(sql.P(func(b *sql.Builder) {
			b.WriteString("CAST(").Ident(s.C(column)).WriteString(" AS TEXT) LIKE ").Arg("%" + strconv.FormatInt(e.user, 10) + "%")
		}))
	}
}

// last deletes the user's row, unless new rows that depend on it have appeared. It locks the row
// with FOR UPDATE, so that an insert that refers to the user waits, and then fails because the
// user is gone.
func (e *Erasure) last(ctx context.Context, ofJob int64) (done bool, err error) {
	err = rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
		done = false
		_, err := tx.User.Query().Where(user.ID(e.user), rows.ForDeletion).OnlyID(ctx)
		if ent.IsNotFound(err) {
			done = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		for _, left := range []func(context.Context) (bool, error){
			tx.Like.Query().Where(like.UserID(e.user)).Exist,
			tx.Post.Query().Where(post.AuthorID(e.user)).Exist,
			tx.Post.Query().Where(post.ParentAuthorID(e.user)).Exist,
			tx.Follow.Query().Where(follow.FollowerID(e.user)).Exist,
			tx.Follow.Query().Where(follow.FolloweeID(e.user)).Exist,
			func(ctx context.Context) (bool, error) { return e.inUse(ctx, tx.Job, ofJob) },
		} {
			if found, err := left(ctx); err != nil || found {
				return errs.Wrap(err, "look for what is left")
			}
		}
		if _, err := tx.Job.Delete().Where(job.Dead(true), e.named(job.FieldPayload)).Exec(ctx); err != nil {
			return fmt.Errorf("delete jobs that were given up: %w", err)
		}
		if err := deleteTraces(ctx, tx, e.user); err != nil {
			return err
		}
		if err := tx.User.DeleteOneID(e.user).Exec(ctx); err != nil {
			return fmt.Errorf("delete user: %w", err)
		}
		done = true
		err = tx.HiddenUser.UpdateOneID(e.user).SetState(hiddenuser.StateGONE).SetDueAt(e.now().Add(tracesFor)).Exec(ctx)
		return errs.Wrap(err, "note that the user is gone")
	})
	return done, err
}

// deleteTraces deletes rows that do not cascade from the user's row and that a concurrent call may
// still have written. It also releases reports that the user has claimed.
func deleteTraces(ctx context.Context, tx *ent.Tx, id int64) error {
	if _, err := tx.IdempotencyKey.Delete().Where(idempotencykey.UserID(id)).Exec(ctx); err != nil {
		return fmt.Errorf("delete idempotency keys: %w", err)
	}
	if err := tx.Report.Update().Where(report.StatusEQ(report.StatusOPEN), report.ClaimedBy(id)).SetClaimedBy(0).Exec(ctx); err != nil {
		return fmt.Errorf("release claimed reports: %w", err)
	}
	_, err := tx.ReadMarker.Delete().Where(readmarker.ID(id)).Exec(ctx)
	return errs.Wrap(err, "delete read marker")
}

// EraseTraces deletes what is left of users whose rows were deleted hours ago, at most a hundred
// users, and then their rows of HiddenUser. It calls forget to delete their keys in Redis. It
// returns how many users it handled.
//
// Cost: an index range; for each user, three deletions by key, an update that reads the open reports,
// and one call of forget.
func EraseTraces(ctx context.Context, db *ent.Client, now time.Time, forget func(ctx context.Context, id int64) error) (int, error) {
	ids, err := db.HiddenUser.Query().Where(hiddenuser.DueAtLTE(now), hiddenuser.StateEQ(hiddenuser.StateGONE)).
		Order(ent.Asc(hiddenuser.FieldDueAt)).Limit(100).IDs(ctx)
	if err != nil {
		return 0, fmt.Errorf("find users who are gone: %w", err)
	}
	for i, id := range ids {
		if err := forget(ctx, id); err != nil {
			return i, err
		}
		err := rows.InTx(ctx, db, func(tx *ent.Tx) error {
			if err := deleteTraces(ctx, tx, id); err != nil {
				return err
			}
			_, err := tx.HiddenUser.Delete().Where(hiddenuser.ID(id), hiddenuser.StateEQ(hiddenuser.StateGONE)).Exec(ctx)
			return errs.Wrap(err, "forget user")
		})
		if err != nil {
			return i, err
		}
	}
	return len(ids), nil
}

func (e *Erasure) likes(ctx context.Context) (int, error) {
	page, err := e.db.Like.Query().Where(like.UserID(e.user)).Limit(erasePage).All(ctx)
	if err != nil || len(page) == 0 {
		return 0, errs.Wrap(err, "find likes")
	}
	posts := rows.Map(page, func(l *ent.Like) int64 { return l.PostID })
	slices.Sort(posts)
	return len(page), rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
		if err := lockPosts(ctx, tx, posts); err != nil {
			return err
		}
		// Likes are deleted without a lock on the row, so only the likes that this statement
		// deletes are counted.
		liked, err := e.unlike(ctx, tx, page)
		if err != nil {
			return fmt.Errorf("delete likes: %w", err)
		}
		return errs.Wrap(tx.Post.Update().Where(rows.Among(post.FieldID, liked)).AddLikeCount(-1).Exec(ctx), "count likes")
	})
}

// unlike deletes likes of different posts and returns the posts of the likes that still existed.
func (e *Erasure) unlike(ctx context.Context, tx *ent.Tx, likes []*ent.Like) (posts []int64, err error) {
	ids := rows.Map(likes, func(l *ent.Like) int64 { return l.ID })
	gone, err := tx.QueryContext(ctx, "DELETE FROM likes WHERE id IN ("+list(ids)+") RETURNING post_id")
	if err != nil {
		return nil, err
	}
	defer gone.Close()
	for gone.Next() {
		var id int64
		if err := gone.Scan(&id); err != nil {
			return nil, err
		}
		posts = append(posts, id)
	}
	return posts, gone.Err()
}

func lockPosts(ctx context.Context, tx *ent.Tx, posts []int64) error {
	_, err := tx.Post.Query().Where(rows.Among(post.FieldID, posts), rows.ForUpdate).Order(ent.Asc(post.FieldID)).IDs(ctx)
	return errs.Wrap(err, "lock posts")
}

// posts deletes a page of the user's posts. The counters of other users' posts that count them are
// corrected in the same transaction.
func (e *Erasure) posts(ctx context.Context) (int, error) {
	page, err := e.db.Post.Query().Where(post.AuthorID(e.user)).Limit(erasePage).
		Select(post.FieldID, post.FieldParentID, post.FieldRepostOf, post.FieldQuoteOf).All(ctx)
	if err != nil || len(page) == 0 {
		return 0, errs.Wrap(err, "find posts")
	}
	posts := rows.PostIDs(page)
	if err := erasePostLikes(ctx, e.db, posts, e.Pace); err != nil {
		return 0, err
	}
	if err := erasePostVersions(ctx, e.db, posts, e.Pace); err != nil {
		return 0, err
	}
	// Whoever replies to a post or reposts it holds its row, and checks then whether its author is
	// hidden. So once the rows have been locked, no reply or repost can be added.
	if err := rows.InTx(ctx, e.db, func(tx *ent.Tx) error { return lockPosts(ctx, tx, slices.Clone(posts)) }); err != nil {
		return 0, err
	}
	if err := e.reposts(ctx, posts); err != nil {
		return 0, err
	}
	return len(posts), rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
		if err := e.uncount(ctx, tx, page); err != nil {
			return err
		}
		if _, err := tx.Delivery.Delete().Where(rows.Among(delivery.FieldID, posts)).Exec(ctx); err != nil {
			return fmt.Errorf("delete receipts: %w", err)
		}
		if _, err := tx.WebhookDelivery.Delete().Where(webhookdelivery.SubjectIn(webhook.PostSubjects(posts)...)).Exec(ctx); err != nil {
			return fmt.Errorf("delete webhooks of posts: %w", err)
		}
		_, err := tx.Post.Delete().Where(rows.Among(post.FieldID, posts)).Exec(ctx)
		return errs.Wrap(err, "delete posts")
	})
}

// reposts deletes the reposts of the posts, which nobody sees any longer.
func (e *Erasure) reposts(ctx context.Context, posts []int64) error {
	return eraseAll(ctx, "delete reposts", e.Pace, e.db.Post.Query().Where(rows.Among(post.FieldRepostOf, posts)).Limit(erasePage).IDs,
		func(ids []int64) (n int, err error) {
			return n, rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
				if err := lockPosts(ctx, tx, ids); err != nil {
					return err
				}
				if _, err := tx.Delivery.Delete().Where(rows.Among(delivery.FieldID, ids)).Exec(ctx); err != nil {
					return err
				}
				n, err = tx.Post.Delete().Where(rows.Among(post.FieldID, ids)).Exec(ctx)
				return err
			})
		})
}

// replies removes the user's id from the replies of others to the user's posts, also to those that were
// deleted before. The replies stay.
func (e *Erasure) replies(ctx context.Context) (int, error) {
	ids, err := e.db.Post.Query().Where(post.ParentAuthorID(e.user)).Limit(erasePage).IDs(ctx)
	if err != nil || len(ids) == 0 {
		return 0, errs.Wrap(err, "find replies")
	}
	return len(ids), rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
		if err := lockPosts(ctx, tx, ids); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE posts SET parent_author_id = NULL WHERE id IN ("+list(ids)+")")
		return errs.Wrap(err, "forget whose post a reply answers")
	})
}

// uncount removes posts from the counters of other users' posts, and locks both. A post in state
// Deleted was removed when it was deleted, and a quote when it was withdrawn.
func (e *Erasure) uncount(ctx context.Context, tx *ent.Tx, page []*ent.Post) error {
	all := rows.PostIDs(page)
	for _, p := range page {
		all = append(all, p.ParentID, p.RepostOf, p.QuoteOf)
	}
	slices.Sort(all)
	locked, err := tx.Post.Query().Where(rows.Among(post.FieldID, slices.Compact(all)), rows.ForUpdate).Order(ent.Asc(post.FieldID)).
		Select(post.FieldID, post.FieldAuthorID, post.FieldVisibility, post.FieldParentID, post.FieldRepostOf, post.FieldQuoteOf, post.FieldQuoteWithdrawn).All(ctx)
	if err != nil {
		return fmt.Errorf("lock posts: %w", err)
	}
	others := map[int64]bool{}
	for _, p := range locked {
		others[p.ID] = p.AuthorID != e.user
	}
	counts := map[rows.Counter]map[int64]int{rows.Replies: {}, rows.Reposts: {}, rows.Quotes: {}}
	for _, p := range locked {
		if p.AuthorID != e.user || p.Visibility == schema.Deleted {
			continue
		}
		counts[rows.Replies][p.ParentID]++
		counts[rows.Reposts][p.RepostOf]++
		if !p.QuoteWithdrawn {
			counts[rows.Quotes][p.QuoteOf]++
		}
	}
	for counter, byPost := range counts {
		same := map[int][]int64{} // posts by the number that they lose
		for id, n := range byPost {
			if others[id] {
				same[n] = append(same[n], id)
			}
		}
		for n, ids := range same {
			query := fmt.Sprintf("UPDATE posts SET %[1]s = %[1]s - %[2]d WHERE id IN (%[3]s)", counter.Column, n, list(ids))
			if _, err := tx.ExecContext(ctx, query); err != nil {
				return fmt.Errorf("count replies, reposts and quotes: %w", err)
			}
		}
	}
	return nil
}

// list returns ids for an IN of SQL.
func list(ids []int64) string {
	return strings.Join(rows.Map(ids, func(id int64) string { return strconv.FormatInt(id, 10) }), ",")
}

// ErasePost deletes the likes of a deleted post, in pages, and then the post. It calls pace
// between two pages.
//
// Cost: two statements for each 5,000 likes, and one more.
func ErasePost(ctx context.Context, db *ent.Client, id int64, pace func(context.Context) error) error {
	if err := erasePostLikes(ctx, db, []int64{id}, pace); err != nil {
		return err
	}
	_, err := db.Post.Delete().Where(post.ID(id), post.VisibilityEQ(schema.Deleted)).Exec(ctx)
	return errs.Wrap(err, "delete post")
}

// erasePostLikes deletes the likes of posts that nobody can like any longer.
func erasePostLikes(ctx context.Context, db *ent.Client, posts []int64, pace func(context.Context) error) error {
	return eraseAll(ctx, "delete likes of posts", pace, db.Like.Query().Where(rows.Among(like.FieldPostID, posts)).Limit(eraseMany).IDs,
		func(ids []int64) (int, error) { return db.Like.Delete().Where(rows.Among(like.FieldID, ids)).Exec(ctx) })
}

// erasePostVersions deletes the earlier versions of posts that nobody can edit any longer.
func erasePostVersions(ctx context.Context, db *ent.Client, posts []int64, pace func(context.Context) error) error {
	return eraseAll(ctx, "delete versions of posts", pace, db.PostVersion.Query().Where(rows.Among(postversion.FieldPostID, posts)).Limit(eraseMany).IDs,
		func(ids []int64) (int, error) {
			return db.PostVersion.Delete().Where(rows.Among(postversion.FieldID, ids)).Exec(ctx)
		})
}

// eraseAll deletes pages of rows until page finds none.
func eraseAll(ctx context.Context, doing string, pace func(context.Context) error, page func(context.Context) ([]int64, error), del func(ids []int64) (int, error)) error {
	for {
		ids, err := page(ctx)
		if err == nil && len(ids) > 0 {
			_, err = del(ids)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if err := pace(ctx); err != nil || len(ids) == 0 {
			return err
		}
	}
}

func (e *Erasure) followers(ctx context.Context) (int, error) {
	page, err := e.db.Follow.Query().Where(follow.FolloweeID(e.user)).Limit(erasePage).All(ctx)
	if err != nil || len(page) == 0 {
		return 0, errs.Wrap(err, "find followers")
	}
	users := rows.Map(page, func(f *ent.Follow) int64 { return f.FollowerID })
	if err := e.Forget(ctx, users); err != nil {
		return 0, err
	}
	return len(page), e.unfollow(ctx, page, users, func(change *ent.UserUpdate) { change.AddFollowingCount(-1) },
		func(f *ent.Follow) int64 { return f.FollowerID })
}

func (e *Erasure) followees(ctx context.Context) (int, error) {
	page, err := e.db.Follow.Query().Where(follow.FollowerID(e.user)).Limit(erasePage).All(ctx)
	if err != nil || len(page) == 0 {
		return 0, errs.Wrap(err, "find followees")
	}
	users := rows.Map(page, func(f *ent.Follow) int64 { return f.FolloweeID })
	return len(page), e.unfollow(ctx, page, users, func(change *ent.UserUpdate) { change.AddFollowerCount(-1) },
		func(f *ent.Follow) int64 { return f.FolloweeID })
}

// unfollow deletes follows and updates the counters of the users at their other ends.
func (e *Erasure) unfollow(ctx context.Context, page []*ent.Follow, users []int64, count func(*ent.UserUpdate), other func(*ent.Follow) int64) error {
	return rows.InTx(ctx, e.db, func(tx *ent.Tx) error {
		_, err := tx.User.Query().Where(rows.Among(user.FieldID, append(users, e.user)), rows.ForUpdate).Order(user.ByID()).IDs(ctx)
		if err != nil {
			return fmt.Errorf("lock users: %w", err)
		}
		ids := rows.Map(page, func(f *ent.Follow) int64 { return f.ID })
		left, err := tx.Follow.Query().Where(rows.Among(follow.FieldID, ids)).All(ctx)
		if err != nil {
			return fmt.Errorf("find follows: %w", err)
		}
		others := rows.Map(left, other)
		if _, err := tx.Follow.Delete().Where(rows.Among(follow.FieldID, ids)).Exec(ctx); err != nil {
			return fmt.Errorf("delete follows: %w", err)
		}
		change := tx.User.Update().Where(rows.Among(user.FieldID, others))
		count(change)
		return errs.Wrap(change.Exec(ctx), "count follows")
	})
}

// others deletes rows that no counter depends on.
func (e *Erasure) others(ctx context.Context) (int, error) {
	all := 0
	for table, find := range map[string]func(context.Context) ([]int64, error){
		followrequest.Table: e.db.FollowRequest.Query().Where(followrequest.Or(followrequest.RequesterID(e.user), followrequest.TargetID(e.user))).Limit(eraseMany).IDs,
		block.Table:         e.db.Block.Query().Where(block.Or(block.BlockerID(e.user), block.BlockedID(e.user))).Limit(eraseMany).IDs,
		mute.Table:          e.db.Mute.Query().Where(mute.Or(mute.MuterID(e.user), mute.MutedID(e.user))).Limit(eraseMany).IDs,
		postmention.Table:   e.db.PostMention.Query().Where(postmention.UserID(e.user)).Limit(eraseMany).IDs,
		report.Table:        e.db.Report.Query().Where(report.Or(report.ReporterID(e.user), report.ReportedID(e.user))).Limit(eraseMany).IDs,
		// Undelivered webhooks are deleted, too: user.deleted tells the other server enough.
		webhookdelivery.Table: e.db.WebhookDelivery.Query().Where(webhookdelivery.TypeNEQ(webhook.UserDeleted), webhookdelivery.BodyContains(ent.NodeID("User", e.user))).
			Limit(eraseMany).IDs,
		idempotencykey.Table: e.db.IdempotencyKey.Query().Where(idempotencykey.UserID(e.user)).Limit(eraseMany).IDs,
	} {
		ids, err := find(ctx)
		if err == nil && len(ids) > 0 {
			_, err = e.db.ExecContext(ctx, "DELETE FROM "+table+" WHERE id IN ("+list(ids)+")")
		}
		if err != nil {
			return 0, fmt.Errorf("delete from %s: %w", table, err)
		}
		all += len(ids)
	}
	return all, nil
}

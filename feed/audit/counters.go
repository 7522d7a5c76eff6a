package audit

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
)

// Counters compares the counters of users and posts with the rows that they count, and repairs
// wrong ones. A counter and its rows change in one transaction, so values that one statement reads
// must agree, however many others write meanwhile. It also compares posts' tags with their texts,
// because a version without tags wrote and edited posts without them. Counters is safe for
// concurrent use.
//
// It leaves out rows that nobody is shown and that have no counters: users who are being deleted,
// with their posts, and deleted posts whose likes are not deleted yet. Replies, reposts and quotes by
// users who are being deleted still count, until their rows are deleted.
type Counters struct{ db *ent.Client }

// NewCounters returns the Counters of the database.
func NewCounters(db *ent.Client) *Counters { return &Counters{db} }

// Counter is a wrong counter.
type Counter struct {
	ID          int64  // of the user or the post
	Column      string // for example follower_count
	Has, Should int64
}

// Recounted is the result of comparing a page of rows.
type Recounted struct {
	Wrong []Counter
	Rows  int   // number of rows compared; 0 after the last page
	Last  int64 // the largest of their ids
	// Mistagged is how many posts have, or before a repair had, other tags than their texts.
	Mistagged int
}

// Count returns the number of users and posts.
//
// Cost: it counts all of them, so it is for operators and not for requests.
func (c *Counters) Count(ctx context.Context) (int, error) {
	users, err := c.db.User.Query().Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count users: %w", err)
	}
	posts, err := c.db.Post.Query().Count(ctx)
	return users + posts, rows.Wrap("count posts", err)
}

// Users compares the counters of up to n users with ids above after, in the order of ids. With
// repair, it locks each user with a wrong counter and recounts. Wrong then has the counters that
// were still wrong, and have been corrected.
//
// Cost: one statement without locks, which counts the follows of the n users by index, and reads
// their posts. A
// repair is a short transaction for each user.
func (c *Counters) Users(ctx context.Context, after int64, n int, repair bool) (Recounted, error) {
	return c.page(ctx, users, after, n, repair)
}

// Posts is Users for posts: it counts their likes, replies, reposts and quotes, and compares their tags with their texts.
//
// Cost: as Users. The tags cost one statement more, and their repair a short transaction that locks
// the mistagged posts.
func (c *Counters) Posts(ctx context.Context, after int64, n int, repair bool) (Recounted, error) {
	page, err := c.page(ctx, posts, after, n, repair)
	if err == nil && page.Rows > 0 {
		page.Mistagged, err = c.tags(ctx, after, page.Last, repair)
	}
	return page, err
}

// counted describes a table with counters. Its SQL alias is t.
type counted struct {
	table, where string
	counters     []counter
	lock         func(ctx context.Context, tx *ent.Tx, id int64) error
}

// counter is a column, with the sub-select of its correct value.
type counter struct {
	column, should string
	has            string // expression of the present value; "" for the column itself
	// atLeast means that a larger value does no harm.
	atLeast bool
}

const unlessDeleting = "NOT EXISTS (SELECT 1 FROM hidden_users h WHERE h.state = 'DELETING' AND h.id = "

var users = counted{
	table: "users", where: unlessDeleting + "t.id)",
	counters: []counter{
		{column: user.FieldFollowerCount, has: rows.Followers.Anywhere("t"), should: "SELECT count(*) FROM follows WHERE followee_id = t.id"},
		{column: user.FieldFollowingCount, has: rows.Following.Anywhere("t"), should: "SELECT count(*) FROM follows WHERE follower_id = t.id"},
		{column: user.FieldPostCount, should: rootsWhere("<>", schema.Deleted)},
		{column: user.FieldPublicPostCount, should: rootsWhere("=", schema.Public)},
		{column: user.FieldFollowersPostCount, should: rootsWhere("=", schema.Followers)},
		{column: user.FieldMutualsPostCount, should: rootsWhere("=", schema.Mutuals)},
		{column: user.FieldLastPostID, should: postsWhere("coalesce(max(id), 0)", "<>", schema.Deleted), atLeast: true},
	},
	lock: func(ctx context.Context, tx *ent.Tx, id int64) error {
		_, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).OnlyID(ctx)
		return err
	},
}

func postsWhere(what, compared string, v schema.Visibility) string {
	return fmt.Sprintf("SELECT %s FROM posts WHERE author_id = t.id AND visibility %s '%s'", what, compared, v)
}

// rootsWhere counts as visibility.Counted does: neither replies nor reposts.
func rootsWhere(compared string, v schema.Visibility) string {
	return postsWhere("count(*)", compared, v) + " AND parent_id IS NULL AND repost_of IS NULL"
}

// naming counts the posts that name the post t in a column.
func naming(column string) string {
	return fmt.Sprintf("SELECT count(*) FROM posts WHERE %s = t.id AND visibility <> '%s'", column, schema.Deleted)
}

var posts = counted{
	table: "posts", where: "t.visibility <> '" + string(schema.Deleted) + "' AND " + unlessDeleting + "t.author_id)",
	counters: []counter{
		{column: post.FieldLikeCount, has: rows.Likes.Anywhere("t"), should: "SELECT count(*) FROM likes WHERE post_id = t.id"},
		{column: post.FieldReplyCount, has: rows.Replies.Anywhere("t"), should: naming(post.FieldParentID)},
		{column: post.FieldRepostCount, has: rows.Reposts.Anywhere("t"), should: naming(post.FieldRepostOf)},
		{column: post.FieldQuoteCount, has: rows.Quotes.Anywhere("t"), should: naming(post.FieldQuoteOf) + " AND NOT quote_withdrawn"},
	},
	lock: func(ctx context.Context, tx *ent.Tx, id int64) error {
		_, err := tx.Post.Query().Where(post.ID(id), rows.ForUpdate).OnlyID(ctx)
		return err
	},
}

func (c *Counters) page(ctx context.Context, of counted, after int64, n int, repair bool) (Recounted, error) {
	found, err := of.compare(ctx, c.db.QueryContext, "t.id > $1", "ORDER BY t.id LIMIT $2", after, n)
	if err != nil || !repair {
		return found, err
	}
	suspects := found.Wrong
	found.Wrong = nil
	for _, s := range slices.CompactFunc(suspects, func(a, b Counter) bool { return a.ID == b.ID }) {
		repaired, err := c.repair(ctx, of, s.ID)
		if err != nil {
			return found, err
		}
		found.Wrong = append(found.Wrong, repaired...)
	}
	return found, nil
}

// compare runs one statement, which sees the table and the rows that it counts at one moment.
func (of counted) compare(ctx context.Context, query func(context.Context, string, ...any) (*sql.Rows, error), which, order string, args ...any) (r Recounted, err error) {
	columns := []string{"t.id"}
	for _, counter := range of.counters {
		columns = append(columns, cmp.Or(counter.has, "t."+counter.column), "("+counter.should+")")
	}
	found, err := query(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+of.table+" t WHERE "+which+" AND "+of.where+" "+order, args...)
	if err != nil {
		return r, fmt.Errorf("count what %s have: %w", of.table, err)
	}
	defer found.Close()
	row, fields := make([]int64, len(columns)), make([]any, len(columns))
	for i := range row {
		fields[i] = &row[i]
	}
	for found.Next() {
		if err := found.Scan(fields...); err != nil {
			return r, err
		}
		r.Rows, r.Last = r.Rows+1, row[0]
		for i, counter := range of.counters {
			has, should := row[2*i+1], row[2*i+2]
			if has < should || has > should && !counter.atLeast {
				r.Wrong = append(r.Wrong, Counter{row[0], counter.column, has, should})
			}
		}
	}
	return r, rows.Wrap("count what "+of.table+" have", errors.Join(found.Err(), found.Close()))
}

// repair corrects the wrong counters of a row. The counters' columns change only under the row's
// lock. The counting statement must begin after the lock is held, to see everything that was
// committed until then. Each column is changed by its error, so that deltas that are appended
// meanwhile are not lost.
func (c *Counters) repair(ctx context.Context, of counted, id int64) ([]Counter, error) {
	var wrong []Counter
	err := rows.InTx(ctx, c.db, func(tx *ent.Tx) error {
		if err := of.lock(ctx, tx, id); err != nil {
			if ent.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("lock: %w", err)
		}
		found, err := of.compare(ctx, tx.QueryContext, "t.id = $1", "", id)
		if err != nil {
			return err
		}
		wrong = found.Wrong
		for _, w := range wrong {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[2]s + $1 WHERE id = $2", of.table, w.Column), w.Should-w.Has, id); err != nil {
				return fmt.Errorf("set %s: %w", w.Column, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("repair the counters of %s %d: %w", of.table, id, err)
	}
	return wrong, nil
}

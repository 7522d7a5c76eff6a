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
	"tideline/internal/errs"
)

// Recounter compares the counters of users and posts with the rows that they count, and repairs
// wrong ones. A counter and its rows change in one transaction, so values that one statement reads
// must agree, however many transactions write at the same time. A Recounter also compares the stored
// tags of posts with their texts, because an earlier version of Tideline wrote and edited posts
// without storing tags. It is safe for concurrent use.
//
// Some rows are shown to nobody, and their counters are no longer kept: users who are being deleted,
// the posts of these users, and deleted posts whose likes are not deleted yet. A Recounter leaves out
// their counters, but counts their replies, reposts and quotes until the rows are deleted. It compares
// the tags of all posts.
type Recounter struct{ db *ent.Client }

// NewRecounter returns the Recounter of the database.
func NewRecounter(db *ent.Client) *Recounter { return &Recounter{db} }

// WrongCounter is a counter whose stored value differs from the number of rows.
type WrongCounter struct {
	ID              int64  // of the user or the post
	Column          string // for example follower_count
	Stored, Correct int64
}

// Recounted is the result of comparing a page of rows.
type Recounted struct {
	Wrong []WrongCounter
	Rows  int   // number of rows whose counters were compared; 0 after the last page
	Last  int64 // the largest of their ids
	// Mistagged is the number of posts whose stored tags differ from the tags of their texts. With
	// repair, it is the number of posts whose tags were corrected.
	Mistagged int
}

// Count returns the number of users and posts.
//
// Cost: it counts all rows, so it is for operators and not for requests.
func (c *Recounter) Count(ctx context.Context) (int, error) {
	users, err := c.db.User.Query().Count(ctx)
	if err != nil {
		return 0, fmt.Errorf("count users: %w", err)
	}
	posts, err := c.db.Post.Query().Count(ctx)
	return users + posts, errs.Wrap(err, "count posts")
}

// Users compares the counters of up to n users with ids above after, in the order of ids. With
// repair, it locks each user with a wrong counter, compares again, and corrects. Wrong then has only
// the counters that were still wrong under the lock; they are now correct.
//
// Cost: one statement without locks, which counts the follows of the n users by index and reads their posts. A
// repair is a short transaction for each user with a wrong counter.
func (c *Recounter) Users(ctx context.Context, after int64, n int, repair bool) (Recounted, error) {
	return c.page(ctx, userCounters, after, n, repair)
}

// Posts does for posts what Users does for users: it counts likes, replies, reposts and quotes. It
// also compares the stored tags of the posts with the tags of their texts.
//
// Cost: as Users. The tags cost one more statement, and their repair one short transaction that locks
// all mistagged posts of the page.
func (c *Recounter) Posts(ctx context.Context, after int64, n int, repair bool) (Recounted, error) {
	page, err := c.page(ctx, postCounters, after, n, repair)
	if err == nil && page.Rows > 0 {
		page.Mistagged, err = c.compareTags(ctx, after, page.Last, repair)
	}
	return page, err
}

// countedTable describes a table with counters. Statements name the table t.
type countedTable struct {
	name     string
	where    string // the condition of the rows whose counters are kept
	counters []counterColumn
	lock     func(ctx context.Context, tx *ent.Tx, id int64) error
}

// counterColumn is a column with a counter.
type counterColumn struct {
	name    string
	stored  string // expression of the stored value; "" means the column itself
	correct string // the SELECT of the correct value
	// upperBound means that the column may also have a larger value than the correct one.
	upperBound bool
}

// unlessDeleting is the beginning of a condition that excludes users whose deletion has begun. The
// expression of the user's id and a closing parenthesis follow.
const unlessDeleting = "NOT EXISTS (SELECT 1 FROM hidden_users h WHERE h.state = 'DELETING' AND h.id = "

var userCounters = countedTable{
	name: "users", where: unlessDeleting + "t.id)",
	counters: []counterColumn{
		{name: user.FieldFollowerCount, stored: rows.Followers.Anywhere("t"), correct: "SELECT count(*) FROM follows WHERE followee_id = t.id"},
		{name: user.FieldFollowingCount, stored: rows.Following.Anywhere("t"), correct: "SELECT count(*) FROM follows WHERE follower_id = t.id"},
		{name: user.FieldPostCount, correct: rootsWhere("<>", schema.Deleted)},
		{name: user.FieldPublicPostCount, correct: rootsWhere("=", schema.Public)},
		{name: user.FieldFollowersPostCount, correct: rootsWhere("=", schema.Followers)},
		{name: user.FieldMutualsPostCount, correct: rootsWhere("=", schema.Mutuals)},
		{name: user.FieldLastPostID, correct: postsWhere("coalesce(max(id), 0)", "<>", schema.Deleted), upperBound: true},
	},
	lock: func(ctx context.Context, tx *ent.Tx, id int64) error {
		_, err := tx.User.Query().Where(user.ID(id), rows.ForUpdate).OnlyID(ctx)
		return err
	},
}

// postsWhere returns a SELECT of a result from the user's posts whose visibility compares to v as the
// operator says.
func postsWhere(result, operator string, v schema.Visibility) string {
	return fmt.Sprintf("SELECT %s FROM posts WHERE author_id = t.id AND visibility %s '%s'", result, operator, v)
}

// rootsWhere counts as visibility.AddToPostCount does: neither replies nor reposts.
func rootsWhere(operator string, v schema.Visibility) string {
	return postsWhere("count(*)", operator, v) + " AND parent_id IS NULL AND repost_of IS NULL"
}

// naming counts the posts that name the post t in a column.
func naming(column string) string {
	return fmt.Sprintf("SELECT count(*) FROM posts WHERE %s = t.id AND visibility <> '%s'", column, schema.Deleted)
}

var postCounters = countedTable{
	name: "posts", where: "t.visibility <> '" + string(schema.Deleted) + "' AND " + unlessDeleting + "t.author_id)",
	counters: []counterColumn{
		{name: post.FieldLikeCount, stored: rows.Likes.Anywhere("t"), correct: "SELECT count(*) FROM likes WHERE post_id = t.id"},
		{name: post.FieldReplyCount, stored: rows.Replies.Anywhere("t"), correct: naming(post.FieldParentID)},
		{name: post.FieldRepostCount, stored: rows.Reposts.Anywhere("t"), correct: naming(post.FieldRepostOf)},
		{name: post.FieldQuoteCount, stored: rows.Quotes.Anywhere("t"), correct: naming(post.FieldQuoteOf) + " AND NOT quote_withdrawn"},
	},
	lock: func(ctx context.Context, tx *ent.Tx, id int64) error {
		_, err := tx.Post.Query().Where(post.ID(id), rows.ForUpdate).OnlyID(ctx)
		return err
	},
}

// page compares a page of a table, and repairs it if repair is set.
func (c *Recounter) page(ctx context.Context, table countedTable, after int64, n int, repair bool) (Recounted, error) {
	found, err := table.compare(ctx, c.db.QueryContext, "t.id > $1", "ORDER BY t.id LIMIT $2", after, n)
	if err != nil || !repair {
		return found, err
	}
	suspects := found.Wrong // grouped by id
	found.Wrong = nil
	for _, s := range slices.CompactFunc(suspects, func(a, b WrongCounter) bool { return a.ID == b.ID }) {
		repaired, err := c.repair(ctx, table, s.ID)
		if err != nil {
			return found, err
		}
		found.Wrong = append(found.Wrong, repaired...)
	}
	return found, nil
}

// compare compares the counters of the selected rows. It runs one statement, so that it sees the
// counters and the rows that they count at one moment. The condition where may use args, and orderBy
// is empty or an ORDER BY clause, which may have a LIMIT.
func (table countedTable) compare(ctx context.Context, query func(context.Context, string, ...any) (*sql.Rows, error), where, orderBy string, args ...any) (r Recounted, err error) {
	columns := []string{"t.id"}
	for _, counter := range table.counters {
		columns = append(columns, cmp.Or(counter.stored, "t."+counter.name), "("+counter.correct+")")
	}
	found, err := query(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table.name+" t WHERE "+where+" AND "+table.where+" "+orderBy, args...)
	if err != nil {
		return r, fmt.Errorf("compare counters of %s: %w", table.name, err)
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
		for i, counter := range table.counters {
			stored, correct := row[2*i+1], row[2*i+2]
			if stored < correct || stored > correct && !counter.upperBound {
				r.Wrong = append(r.Wrong, WrongCounter{row[0], counter.name, stored, correct})
			}
		}
	}
	return r, errs.Wrap(errors.Join(found.Err(), found.Close()), "compare counters of "+table.name)
}

// repair corrects the wrong counters of a row, and returns them. It locks the row first, because the
// columns of the counters change only under that lock. The counting statement begins once the lock
// is held, to see everything that was committed until then.
//
// Some counters also have deltas in a table of their own, which other transactions add without the
// lock. So repair adds the difference to the column instead of setting the column.
func (c *Recounter) repair(ctx context.Context, table countedTable, id int64) ([]WrongCounter, error) {
	var wrong []WrongCounter
	err := rows.InTx(ctx, c.db, func(tx *ent.Tx) error {
		if err := table.lock(ctx, tx, id); err != nil {
			if ent.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("lock: %w", err)
		}
		found, err := table.compare(ctx, tx.QueryContext, "t.id = $1", "", id)
		if err != nil {
			return err
		}
		wrong = found.Wrong
		for _, w := range wrong {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[2]s + $1 WHERE id = $2", table.name, w.Column), w.Correct-w.Stored, id); err != nil {
				return fmt.Errorf("set %s: %w", w.Column, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("repair the counters of %s %d: %w", table.name, id, err)
	}
	return wrong, nil
}

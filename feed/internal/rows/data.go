package rows

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/postdata"
	"tideline/ent/user"
	"tideline/ent/userdata"
	"tideline/internal/errs"
)

// KeepPostData replaces the app's own fields of the post with data, which is in canonical form.
// ent.NoData deletes them.
func KeepPostData(ctx context.Context, tx *ent.Tx, post int64, data string) error {
	return keepData(ctx, tx, postdata.Table, postdata.FieldPostID, post, data)
}

// KeepUserData does for a user what KeepPostData does for a post. It locks the user's row, so that changes are recorded in the order of their commits.
func KeepUserData(ctx context.Context, tx *ent.Tx, id int64, data string) error {
	if _, err := tx.User.Query().Where(user.ID(id), ForUpdate).OnlyID(ctx); err != nil {
		return fmt.Errorf("lock user: %w", err)
	}
	return keepData(ctx, tx, userdata.Table, userdata.FieldUserID, id, data)
}

func keepData(ctx context.Context, tx *ent.Tx, table, column string, of int64, data string) (err error) {
	if data == ent.NoData {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE %s = $1", table, column), of)
	} else {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %[1]s (%[2]s, data) VALUES ($1, $2)"+
			" ON CONFLICT (%[2]s) DO UPDATE SET data = excluded.data", table, column), of, data)
	}
	return errs.Wrap(err, "store data")
}

// PostData returns the app's own fields of posts, in the order of the ids, and ent.NoData for posts
// without any. The caller must have decided who sees the posts.
//
// Cost: one query by index.
func PostData(ctx context.Context, db *ent.PostDataClient, posts []int64) ([]*string, error) {
	found, err := db.Query().Where(Among(postdata.FieldPostID, posts)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read data of posts: %w", err)
	}
	return dataOf(InOrder(posts, found, func(d *ent.PostData) int64 { return d.PostID }), func(d *ent.PostData) *string { return &d.Data }), nil
}

// UserData is PostData for users.
func UserData(ctx context.Context, db *ent.UserDataClient, users []int64) ([]*string, error) {
	found, err := db.Query().Where(Among(userdata.FieldUserID, users)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read data of users: %w", err)
	}
	return dataOf(InOrder(users, found, func(d *ent.UserData) int64 { return d.UserID }), func(d *ent.UserData) *string { return &d.Data }), nil
}

func dataOf[T any](list []*T, data func(*T) *string) []*string {
	all := make([]*string, len(list))
	for i, d := range list {
		if all[i] = new(ent.NoData); d != nil {
			all[i] = data(d)
		}
	}
	return all
}

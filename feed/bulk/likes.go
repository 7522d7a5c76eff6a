package bulk

import (
	"context"
	"encoding/json"
	"fmt"

	"tideline/ent"
	"tideline/ent/hiddenuser"
	"tideline/ent/post"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/internal/errs"
)

// Like says that a user likes a post. Both are external ids.
type Like struct{ User, Post string }

// likeCount is the number of likes that a statement adds to a post.
type likeCount struct {
	Post  int64 `json:"a"`
	Added int   `json:"b"`
}

// Likes creates likes, whether or not the user may see the post now, because the sender knows about
// the like. Error: BadInput, for more than MaxRows.
//
// Cost: seven statements a thousand rows. The posts are locked until the transaction ends. On
// PostgreSQL, users who like or unlike one of them do not wait, because rows.Counter.Add then appends
// a delta.
func (b *Bulk) Likes(ctx context.Context, issuer string, list []Like) ([]*Result, error) {
	return take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []Like, results []*Result) error {
		var userIDs, externalIDs []string
		for _, row := range list {
			userIDs, externalIDs = append(userIDs, row.User), append(externalIDs, row.Post)
		}
		users, err := b.acceptedUsersOf(ctx, tx, issuer, userIDs, hiddenuser.StateSUSPENDED)
		if err != nil {
			return err
		}
		posts, err := b.postsOf(ctx, tx, issuer, externalIDs)
		if err != nil {
			return err
		}
		pairs := make([]pair, len(list))
		var postIDs []int64
		for i, row := range list {
			switch u, p := users[row.User], posts[row.Post]; {
			case u == nil:
				results[i] = refused(refusal.ErrNoSuchUser)
			case p == nil:
				results[i] = refused(refusal.ErrNoSuchPost)
			default:
				pairs[i] = pair{u.ID, p.ID}
				postIDs = append(postIDs, p.ID)
			}
		}
		if _, err := tx.Post.Query().Where(rows.Among(post.FieldID, sorted(postIDs))).Order(ent.Asc(post.FieldID)).Modify(rows.ForUpdate).Select(post.FieldID).Ints(ctx); err != nil {
			return fmt.Errorf("lock posts: %w", err)
		}
		likes, err := b.among(ctx, tx, "likes", "user_id", "post_id", pairs)
		if err != nil {
			return err
		}
		var newLikes []pair
		for i, p := range pairs {
			if results[i] != nil {
				continue
			}
			results[i] = &Result{Status: Unchanged}
			if !likes[p] {
				results[i].Status, likes[p] = Created, true
				newLikes = append(newLikes, p)
			}
		}
		if len(newLikes) == 0 {
			return nil
		}
		counts, err := b.insertLikes(ctx, tx, newLikes)
		if err != nil {
			return fmt.Errorf("create likes: %w", err)
		}
		err = exec(ctx, tx, "UPDATE posts SET like_count = like_count + r.b FROM "+b.table("a bigint", "b bigint")+" WHERE posts.id = r.a", counts)
		return errs.Wrap(err, "count likes")
	})
}

// insertLikes inserts likes, and returns the number of inserted likes of each post. Users insert likes
// before they lock the post, if at all, so some may exist by now.
func (b *Bulk) insertLikes(ctx context.Context, tx *ent.Tx, likes []pair) ([]likeCount, error) {
	list, err := json.Marshal(likes)
	if err != nil {
		return nil, err
	}
	inserted, err := tx.QueryContext(ctx, "INSERT INTO likes (user_id, post_id) SELECT r.a, r.b FROM "+b.table("a bigint", "b bigint")+
		" WHERE TRUE ON CONFLICT DO NOTHING RETURNING post_id", string(list))
	if err != nil {
		return nil, err
	}
	defer inserted.Close()
	byPost := map[int64]int{}
	for inserted.Next() {
		var post int64
		if err := inserted.Scan(&post); err != nil {
			return nil, err
		}
		byPost[post]++
	}
	var counts []likeCount
	for post, n := range byPost {
		counts = append(counts, likeCount{post, n})
	}
	return counts, inserted.Err()
}

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
)

// Like says that a user likes a post. Both are external ids.
type Like struct{ User, Post string }

// Likes creates likes, whether or not the user may see the post now, because the sender knows about
// the like. Error: BadInput, for more than MaxRows.
//
// Cost: seven statements a thousand rows. The posts are locked as by other likes.
func (b *Bulk) Likes(ctx context.Context, issuer string, list []Like) ([]*Result, error) {
	return take(ctx, b, list, func(ctx context.Context, tx *ent.Tx, list []Like, results []*Result) error {
		var userIDs, externalIDs []string
		for _, row := range list {
			userIDs, externalIDs = append(userIDs, row.User), append(externalIDs, row.Post)
		}
		users, err := b.presentUsersOf(ctx, tx, issuer, userIDs, hiddenuser.StateSUSPENDED)
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
		var fresh []pair
		for i, p := range pairs {
			if results[i] != nil {
				continue
			}
			results[i] = &Result{Status: Unchanged}
			if !likes[p] {
				results[i].Status, likes[p] = Created, true
				fresh = append(fresh, p)
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		added, err := b.like(ctx, tx, fresh)
		if err != nil {
			return fmt.Errorf("create likes: %w", err)
		}
		var counts []pair
		for id, n := range added {
			counts = append(counts, pair{id, n})
		}
		err = exec(ctx, tx, "UPDATE posts SET like_count = like_count + r.b FROM "+b.table("a bigint", "b bigint")+" WHERE posts.id = r.a", counts)
		return rows.Wrap("count likes", err)
	})
}

// like inserts likes, and returns how many likes are new, by post. Users add likes without a lock,
// so some may already exist.
func (b *Bulk) like(ctx context.Context, tx *ent.Tx, likes []pair) (map[int64]int64, error) {
	data, err := json.Marshal(likes)
	if err != nil {
		return nil, err
	}
	made, err := tx.QueryContext(ctx, "INSERT INTO likes (user_id, post_id) SELECT r.a, r.b FROM "+b.table("a bigint", "b bigint")+
		" WHERE TRUE ON CONFLICT DO NOTHING RETURNING post_id", string(data))
	if err != nil {
		return nil, err
	}
	defer made.Close()
	added := map[int64]int64{}
	for made.Next() {
		var post int64
		if err := made.Scan(&post); err != nil {
			return nil, err
		}
		added[post]++
	}
	return added, made.Err()
}

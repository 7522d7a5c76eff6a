package feed

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect/sql/sqlgraph"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
)

// LikePost adds the viewer's like, and returns the liked post. Liking again changes nothing. A repost
// stands for its original. Errors: Unauthenticated,
// NotFound.
//
// Cost: one query and no lock if nothing changes. Otherwise two queries and a short transaction.
// Likes of the same post do not wait for each other.
func (f *Feed) LikePost(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, true)
}

// UnlikePost removes the viewer's like. Errors: Unauthenticated, NotFound.
//
// Cost: as LikePost.
func (f *Feed) UnlikePost(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, false)
}

// changeLike inserts or deletes the row of the like. Only the call that changed the row updates
// the counter, so concurrent calls count once.
func (f *Feed) changeLike(ctx context.Context, v session.Viewer, id int64, to bool) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	p, err := f.Post(ctx, v, id)
	if err == nil && p.RepostOf != 0 {
		id = p.RepostOf
		p, err = f.Post(ctx, v, id)
	}
	if err != nil {
		return nil, err
	}
	if likes, known := visibility.Liked(p); known && likes == to {
		return p, nil
	}
	query, n, kind := "DELETE FROM likes WHERE user_id = $1 AND post_id = $2", -1, webhook.LikeDeleted
	if to {
		query, n, kind = "INSERT INTO likes (user_id, post_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", 1, webhook.LikeCreated
	}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		done, err := tx.ExecContext(ctx, query, v.ID, id)
		if err != nil {
			return fmt.Errorf("change like: %w", err)
		}
		if changed, err := done.RowsAffected(); err != nil || changed == 0 {
			return err
		}
		if err := f.cfg.Webhooks.Like(ctx, tx, kind, v.ID, id); err != nil {
			return err
		}
		return rows.Likes.Add(ctx, tx, f.cfg.Dialect, id, n) // last: it may lock the post
	})
	if sqlgraph.IsForeignKeyConstraintError(err) { // the post was deleted in the meantime
		return nil, refusal.ErrNoSuchPost
	}
	if err != nil {
		return nil, err
	}
	return f.Post(ctx, v, id)
}

// Liked reports for each post whether the viewer likes it. It costs nothing if the posts were
// read for the viewer, and one query otherwise.
func (f *Feed) Liked(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]bool, error) {
	liked := make([]bool, len(posts))
	if v.ID == 0 {
		return liked, nil
	}
	for i, p := range posts {
		var known bool
		if liked[i], known = visibility.Liked(p); !known {
			return f.likedNow(ctx, v, rows.PostIDs(posts))
		}
	}
	return liked, nil
}

// likedNow implements Liked with a query. It costs one query.
func (f *Feed) likedNow(ctx context.Context, v session.Viewer, ids []int64) ([]bool, error) {
	liked := make([]bool, len(ids))
	list, err := f.cfg.DB.Like.Query().Where(like.UserID(v.ID), rows.Among(like.FieldPostID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read likes: %w", err)
	}
	for i, row := range rows.InOrder(ids, list, func(l *ent.Like) int64 { return l.PostID }) {
		liked[i] = row != nil
	}
	return liked, nil
}

// FoldCounters adds pending deltas to the counter columns of users and posts, for at most a
// thousand users and a thousand posts. It returns the number of updated rows. The counts that
// users see do not change.
//
// Cost: two index look-ups if there are no deltas; otherwise a short transaction for each row.
func FoldCounters(ctx context.Context, db *ent.Client) (int, error) { return rows.Fold(ctx, db) }

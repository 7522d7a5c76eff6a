package feed

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
)

// LikePost adds the viewer's like; liking again changes nothing. Errors:
// Unauthenticated, NotFound.
//
// Cost: one query and one short transaction; likes of one post wait for each other.
func (f *Feed) LikePost(ctx context.Context, v account.Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, func(tx *ent.Tx) (int, error) {
		liked, err := tx.Like.Query().Where(like.PostID(id), like.UserID(v.ID)).Exist(ctx)
		if err != nil || liked {
			return 0, err
		}
		return 1, tx.Like.Create().SetPostID(id).SetUserID(v.ID).Exec(ctx)
	})
}

// UnlikePost removes the viewer's like. Errors: Unauthenticated, NotFound.
//
// Cost: as LikePost.
func (f *Feed) UnlikePost(ctx context.Context, v account.Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, func(tx *ent.Tx) (int, error) {
		n, err := tx.Like.Delete().Where(like.PostID(id), like.UserID(v.ID)).Exec(ctx)
		return -n, err
	})
}

// changeLike runs fn under a lock on the post, so that the counter equals the likes
// however many calls run at once. Fn returns by how much the likes changed.
func (f *Feed) changeLike(ctx context.Context, v account.Viewer, id int64, fn func(tx *ent.Tx) (int, error)) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	if _, err := f.Post(ctx, v, id); err != nil {
		return nil, err
	}
	var p *ent.Post
	err := rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		var err error
		p, err = tx.Post.Query().Where(post.ID(id)).Modify(rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) || err == nil && p.Visibility == schema.Deleted {
			return refusal.ErrNoSuchPost
		}
		if err != nil {
			return fmt.Errorf("lock post: %w", err)
		}
		n, err := fn(tx)
		if err != nil {
			return fmt.Errorf("change like: %w", err)
		}
		if n == 0 {
			return nil
		}
		if p, err = tx.Post.UpdateOne(p).AddLikeCount(n).Save(ctx); err != nil {
			return fmt.Errorf("count like: %w", err)
		}
		kind := webhook.LikeCreated
		if n < 0 {
			kind = webhook.LikeDeleted
		}
		return f.cfg.Webhooks.Like(ctx, tx, kind, v.ID, id)
	})
	return p, err
}

// Liked reports of each post whether the viewer likes it. It costs nothing for the
// posts of a page that was read for the viewer, otherwise one query.
func (f *Feed) Liked(ctx context.Context, v account.Viewer, posts []*ent.Post) ([]bool, error) {
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

// likedNow is Liked at this moment. It costs one query.
func (f *Feed) likedNow(ctx context.Context, v account.Viewer, ids []int64) ([]bool, error) {
	liked := make([]bool, len(ids))
	list, err := f.db.Like.Query().Where(like.UserID(v.ID), rows.Among(like.FieldPostID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read likes: %w", err)
	}
	for i, row := range rows.InOrder(ids, list, func(l *ent.Like) int64 { return l.PostID }) {
		liked[i] = row != nil
	}
	return liked, nil
}

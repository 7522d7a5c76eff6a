package feed

import (
	"context"
	"errors"
	"fmt"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/ent/idempotencykey"
	"tideline/ent/like"
	"tideline/ent/post"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/timeline"
)

// Draft is a post to be made.
type Draft struct {
	Text       string
	Visibility *schema.Visibility // nil: the author's default
	// IdempotencyKey, unless empty, makes a repeated call return the post that
	// the first one made.
	IdempotencyKey string
}

// CreatePost makes a post; the viewer's next read shows it. Errors:
// Unauthenticated, BadInput, Conflict when the post that an idempotency key
// stands for has been deleted.
//
// Cost: one short transaction and the author's own two feeds, however many
// followers there are: the rest is its job's.
func (f *Feed) CreatePost(ctx context.Context, v Viewer, d Draft) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, errSignIn
	}
	text, err := cleanText("The text", d.Text, 1, f.cfg.MaxText)
	if err != nil {
		return nil, err
	}
	if len(d.IdempotencyKey) > maxKey {
		return nil, refuse(BadInput, "An idempotency key has at most %d bytes.", maxKey)
	}
	if _, err := cleanLine("An idempotency key", d.IdempotencyKey, 0, maxKey); err != nil {
		return nil, err
	}
	if p, err := f.firstPost(ctx, v, d.IdempotencyKey); p != nil || err != nil {
		return p, err
	}
	p, err := f.insertPost(ctx, v, text, d)
	if ent.IsConstraintError(err) && d.IdempotencyKey != "" {
		// A concurrent call with the same key came first.
		return f.firstPost(ctx, v, d.IdempotencyKey)
	}
	if err != nil {
		return nil, err
	}
	f.addOwn(ctx, p)
	return p, nil
}

// firstPost is the post that an earlier call with the key made, or nil.
func (f *Feed) firstPost(ctx context.Context, v Viewer, key string) (*ent.Post, error) {
	if key == "" {
		return nil, nil
	}
	k, err := f.db.IdempotencyKey.Query().Where(idempotencykey.UserID(v.ID), idempotencykey.Key(key)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find idempotency key: %w", err)
	}
	p, err := f.db.Post.Get(ctx, k.PostID)
	if ent.IsNotFound(err) {
		return nil, refuse(Conflict, "The post made with this idempotency key has been deleted.")
	}
	return p, err
}

func (f *Feed) insertPost(ctx context.Context, v Viewer, text string, d Draft) (*ent.Post, error) {
	id, err := f.ids.Next()
	if err != nil {
		return nil, err
	}
	var p *ent.Post
	err = f.inTx(ctx, func(tx *ent.Tx) error {
		author, err := tx.User.Query().Where(user.ID(v.ID)).Modify(forUpdate).Only(ctx)
		if err != nil {
			return fmt.Errorf("lock author: %w", err)
		}
		visibility := author.DefaultVisibility
		if d.Visibility != nil {
			visibility = *d.Visibility
		}
		p, err = tx.Post.Create().SetID(id).SetAuthorID(v.ID).SetText(text).SetVisibility(visibility).Save(ctx)
		if err != nil {
			return fmt.Errorf("create post: %w", err)
		}
		if d.IdempotencyKey != "" {
			err := tx.IdempotencyKey.Create().SetUserID(v.ID).SetKey(d.IdempotencyKey).SetPostID(id).Exec(ctx)
			if err != nil {
				return fmt.Errorf("keep idempotency key: %w", err)
			}
		}
		err = countPosts(tx.User.UpdateOneID(v.ID), visibility, 1).SetLastPostID(max(id, author.LastPostID)).Exec(ctx)
		if err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		return f.enqueuePost(ctx, tx, PostCreated, author, PostJob{Post: id, Author: v.ID})
	})
	return p, err
}

// countPosts adds n to the counters of the author that posts of the visibility are
// in. What no counter of a visibility has of all posts is PRIVATE.
func countPosts(author *ent.UserUpdateOne, v schema.Visibility, n int) *ent.UserUpdateOne {
	switch v {
	case schema.Public:
		author.AddPublicPostCount(n)
	case schema.Followers:
		author.AddFollowersPostCount(n)
	case schema.Mutuals:
		author.AddMutualsPostCount(n)
	}
	return author.AddPostCount(n)
}

// addOwn shows authors their own post at once. The job does it again, so a
// failure here costs freshness for a moment and nothing else.
func (f *Feed) addOwn(ctx context.Context, p *ent.Post) {
	err := errors.Join(
		f.tl.Add(ctx, timeline.Inbox(p.AuthorID), p.ID),
		f.tl.Add(ctx, timeline.Outbox(p.AuthorID), p.ID),
	)
	if err != nil {
		f.log.WarnContext(ctx, "own feeds not updated; the job will", "post", p.ID, "error", err)
	}
}

// ownPost locks a post for a change by its author, inside tx. A post of another
// is NotFound or Forbidden, as the viewer may see it or not.
func (f *Feed) ownPost(ctx context.Context, tx *ent.Tx, v Viewer, id int64) (*ent.User, *ent.Post, error) {
	author, err := tx.User.Query().Where(user.ID(v.ID)).Modify(forUpdate).Only(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("lock author: %w", err)
	}
	p, err := tx.Post.Query().Where(post.ID(id)).Modify(forUpdate).Only(ctx)
	if ent.IsNotFound(err) || (err == nil && p.AuthorID != v.ID) {
		return nil, nil, errNoSuchPost
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lock post: %w", err)
	}
	return author, p, nil
}

// mayChange tells NotFound from Forbidden before a change of a post: who may
// see it learns that it is another's.
func (f *Feed) mayChange(ctx context.Context, v Viewer, id int64) error {
	if v.ID == 0 {
		return errSignIn
	}
	p, err := f.Post(ctx, v, id)
	if err != nil {
		return err
	}
	if p.AuthorID != v.ID {
		return refuse(Forbidden, "Only its author may change a post.")
	}
	return nil
}

// SetVisibility changes who may see the viewer's post. From its return on no
// read shows the post to those it is hidden from. Errors: Unauthenticated,
// NotFound, Forbidden.
//
// Cost: one query and one short transaction, whatever the audience.
func (f *Feed) SetVisibility(ctx context.Context, v Viewer, id int64, to schema.Visibility) (*ent.Post, error) {
	if err := f.mayChange(ctx, v, id); err != nil {
		return nil, err
	}
	var p *ent.Post
	err := f.inTx(ctx, func(tx *ent.Tx) error {
		author, found, err := f.ownPost(ctx, tx, v, id)
		if err != nil {
			return err
		}
		if p = found; p.Visibility == to {
			return nil
		}
		from := found.Visibility
		if p, err = tx.Post.UpdateOne(found).SetVisibility(to).Save(ctx); err != nil {
			return fmt.Errorf("set visibility: %w", err)
		}
		count := countPosts(countPosts(tx.User.UpdateOneID(v.ID), from, -1), to, 1)
		if err := count.Exec(ctx); err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		return f.enqueuePost(ctx, tx, PostChanged, author, PostJob{Post: id, Author: v.ID, From: from, To: to})
	})
	f.visibilityVersion.Add(1)
	return p, err
}

// DeletePost deletes the viewer's post and its likes. From its return on no
// read shows it. Errors: Unauthenticated, NotFound, Forbidden.
//
// Cost: as SetVisibility, and a row for each like.
func (f *Feed) DeletePost(ctx context.Context, v Viewer, id int64) error {
	if err := f.mayChange(ctx, v, id); err != nil {
		return err
	}
	err := f.inTx(ctx, func(tx *ent.Tx) error {
		author, p, err := f.ownPost(ctx, tx, v, id)
		if err != nil {
			return err
		}
		if err := tx.Post.DeleteOne(p).Exec(ctx); err != nil {
			return fmt.Errorf("delete post: %w", err)
		}
		if _, err := tx.Delivery.Delete().Where(delivery.ID(id)).Exec(ctx); err != nil {
			return fmt.Errorf("delete receipt: %w", err)
		}
		last := author.LastPostID
		if last == id {
			last, err = tx.Post.Query().Where(post.AuthorID(v.ID)).Order(ent.Desc(post.FieldID)).FirstID(ctx)
			if err != nil && !ent.IsNotFound(err) {
				return fmt.Errorf("find newest post: %w", err)
			}
		}
		if err := countPosts(tx.User.UpdateOneID(v.ID), p.Visibility, -1).SetLastPostID(last).Exec(ctx); err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		return f.enqueuePost(ctx, tx, PostChanged, author, PostJob{Post: id, Author: v.ID, From: p.Visibility})
	})
	if err != nil {
		return err
	}
	f.visibilityVersion.Add(1)
	err = errors.Join(
		f.tl.Remove(ctx, timeline.Inbox(v.ID), id),
		f.tl.Remove(ctx, timeline.Outbox(v.ID), id),
	)
	if err != nil {
		f.log.WarnContext(ctx, "own feeds not updated; the job will", "post", id, "error", err)
	}
	return nil
}

// LikePost adds the viewer's like; liking again changes nothing. Errors:
// Unauthenticated, NotFound.
//
// Cost: one query and one short transaction; likes of one post wait for each other.
func (f *Feed) LikePost(ctx context.Context, v Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, func(tx *ent.Tx) (int, error) {
		liked, err := tx.Like.Query().Where(like.PostID(id), like.UserID(v.ID)).Exist(ctx)
		if err != nil || liked {
			return 0, err
		}
		return 1, tx.Like.Create().SetPostID(id).SetUserID(v.ID).Exec(ctx)
	})
}

// UnlikePost takes the viewer's like back. Errors: Unauthenticated, NotFound.
//
// Cost: as LikePost.
func (f *Feed) UnlikePost(ctx context.Context, v Viewer, id int64) (*ent.Post, error) {
	return f.changeLike(ctx, v, id, func(tx *ent.Tx) (int, error) {
		n, err := tx.Like.Delete().Where(like.PostID(id), like.UserID(v.ID)).Exec(ctx)
		return -n, err
	})
}

// changeLike runs fn, which says by how much the likes changed, under a lock on
// the post, so that the counter equals the likes however many calls run at once.
func (f *Feed) changeLike(ctx context.Context, v Viewer, id int64, fn func(tx *ent.Tx) (int, error)) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, errSignIn
	}
	if _, err := f.Post(ctx, v, id); err != nil {
		return nil, err
	}
	var p *ent.Post
	err := f.inTx(ctx, func(tx *ent.Tx) error {
		var err error
		p, err = tx.Post.Query().Where(post.ID(id)).Modify(forUpdate).Only(ctx)
		if ent.IsNotFound(err) {
			return errNoSuchPost
		}
		if err != nil {
			return fmt.Errorf("lock post: %w", err)
		}
		n, err := fn(tx)
		if err != nil {
			return fmt.Errorf("change like: %w", err)
		}
		if n != 0 {
			p, err = tx.Post.UpdateOne(p).AddLikeCount(n).Save(ctx)
		}
		return err
	})
	return p, err
}

// Post is one post. Error: NotFound, also when the viewer may not see it. It costs
// one query.
func (f *Feed) Post(ctx context.Context, v Viewer, id int64) (*ent.Post, error) {
	posts, err := f.Posts(ctx, v, []int64{id})
	if err != nil {
		return nil, err
	}
	if posts[0] == nil {
		return nil, errNoSuchPost
	}
	return posts[0], nil
}

// Posts are the posts of the ids, in their order; nil where there is none or
// none that the viewer may see. It costs one query.
func (f *Feed) Posts(ctx context.Context, v Viewer, ids []int64) ([]*ent.Post, error) {
	rows, err := f.posts(v.ID).Where(f.among(post.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read posts: %w", err)
	}
	if rows, err = shown(Direct, v.ID, rows); err != nil {
		return nil, err
	}
	return inOrder(ids, rows, func(p *ent.Post) int64 { return p.ID }), nil
}

// Liked says of each post whether the viewer likes it. It costs nothing for the
// posts of a page that was read for the viewer, else one query.
func (f *Feed) Liked(ctx context.Context, v Viewer, posts []*ent.Post) ([]bool, error) {
	liked := make([]bool, len(posts))
	if v.ID == 0 {
		return liked, nil
	}
	for i, p := range posts {
		flags, err := flagsOf(p)
		if err != nil { // it was not read so
			return f.likedNow(ctx, v, idsOf(posts))
		}
		liked[i] = flags&(1<<flagLiked) != 0
	}
	return liked, nil
}

// likedNow is Liked at this moment. It costs one query.
func (f *Feed) likedNow(ctx context.Context, v Viewer, ids []int64) ([]bool, error) {
	liked := make([]bool, len(ids))
	rows, err := f.db.Like.Query().Where(like.UserID(v.ID), f.among(like.FieldPostID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read likes: %w", err)
	}
	for i, row := range inOrder(ids, rows, func(l *ent.Like) int64 { return l.PostID }) {
		liked[i] = row != nil
	}
	return liked, nil
}

// Deliveries are the receipts of the posts' fan-out, in their order: nil for
// anyone but the author, and before the fan-out has begun. It costs one query.
func (f *Feed) Deliveries(ctx context.Context, v Viewer, posts []*ent.Post) ([]*ent.Delivery, error) {
	ids := make([]int64, len(posts)) // 0 where it is not the viewer's to know
	for i, p := range posts {
		if v.ID == p.AuthorID {
			ids[i] = p.ID
		}
	}
	rows, err := f.db.Delivery.Query().Where(f.among(delivery.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return inOrder(ids, rows, func(d *ent.Delivery) int64 { return d.ID }), nil
}

// inOrder arranges rows as ids asks for them, nil where there is no row.
func inOrder[T any](ids []int64, rows []*T, id func(*T) int64) []*T {
	byID := make(map[int64]*T, len(rows))
	for _, row := range rows {
		byID[id(row)] = row
	}
	list := make([]*T, len(ids))
	for i := range ids {
		list[i] = byID[ids[i]]
	}
	return list
}

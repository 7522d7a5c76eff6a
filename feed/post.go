package feed

import (
	"context"
	"fmt"
	"time"

	"entgo.io/ent/dialect/sql/sqlgraph"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/ent/externalpost"
	"tideline/ent/idempotencykey"
	"tideline/ent/post"
	"tideline/ent/posttag"
	"tideline/ent/postversion"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/queue"
)

// Draft is a post to be made.
type Draft struct {
	Text       string
	Visibility *schema.Visibility // nil: the author's default
	Data       *string            // the own fields of the app, a JSON object; nil: none
	// IdempotencyKey, unless empty, makes a repeated call return the post of the
	// first call.
	IdempotencyKey string
}

// CreatePost makes a post; the viewer's next read shows it. Errors:
// Unauthenticated, BadInput, Conflict when the post of the idempotency key has another
// text or other data, or has been deleted.
//
// Cost: one statement (on SQLite a short transaction) and the author's own two feeds,
// whatever the number of followers: its job does the rest. A repeated call costs two
// queries and the two feeds.
func (f *Feed) CreatePost(ctx context.Context, v account.Viewer, d Draft) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	body, err := text.OfPost(f.cfg.MaxText).Clean(d.Text)
	if err != nil {
		return nil, err
	}
	key := text.Field{What: "An idempotency key", Name: "idempotencyKey", Limit: "idempotencyKeyLength", Most: MaxKey}
	if len(d.IdempotencyKey) > MaxKey {
		return nil, refusal.New(refusal.TooLong, "An idempotency key has at most %d bytes.", MaxKey).In("idempotencyKey").Beyond("idempotencyKeyLength", MaxKey, len(d.IdempotencyKey))
	}
	if _, err := key.CleanLine(d.IdempotencyKey); err != nil {
		return nil, err
	}
	data := ent.NoData
	if d.Data != nil {
		if data, err = text.Data(*d.Data); err != nil {
			return nil, err
		}
	}
	p, err := firstPost(ctx, f.db, v, body, data, d.IdempotencyKey)
	if p == nil && err == nil {
		p, err = f.insertPost(ctx, v, body, data, d)
	}
	if sqlgraph.IsUniqueConstraintError(err) {
		// A concurrent call with the same key may have come first. If none has, another
		// constraint was violated, and the error stays.
		if first, sooner := firstPost(ctx, f.db, v, body, data, d.IdempotencyKey); first != nil || sooner != nil {
			p, err = first, sooner
		}
	}
	if err != nil {
		return nil, err
	}
	// Also for a post that is there already: the first call may have ended with its
	// process, right after the commit.
	f.home.AddOwn(ctx, p.AuthorID, p.ID)
	return p, nil
}

// firstPost returns the post that an earlier call with the key made, or nil. The error for
// a post that has another text, or other data, is Conflict: a client that uses its keys again
// would lose posts.
func firstPost(ctx context.Context, db *ent.Client, v account.Viewer, body, data, key string) (*ent.Post, error) {
	if key == "" {
		return nil, nil
	}
	k, err := db.IdempotencyKey.Query().Where(idempotencykey.UserID(v.ID), idempotencykey.Key(key)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find idempotency key: %w", err)
	}
	p, err := db.Post.Query().Where(post.ID(k.PostID), rows.WithLikes).Only(ctx)
	if ent.IsNotFound(err) || err == nil && p.Visibility == schema.Deleted {
		return nil, refusal.New(refusal.KeyUsed, "The post made with this idempotency key has been deleted.").In("idempotencyKey")
	}
	if err != nil {
		return nil, fmt.Errorf("find first post: %w", err)
	}
	found, err := rows.PostData(ctx, db.PostData, []int64{p.ID})
	if err != nil {
		return nil, err
	}
	p.Data = found[0]
	said, had := p.Text, *p.Data
	if p.EditedAt > 0 {
		first, err := firstVersion(ctx, db, p.ID)
		if first == nil { // or it is kept no more
			return p, err
		}
		said, had = first.Text, first.Data
	}
	if said != body || had != data {
		return nil, refusal.New(refusal.KeyUsed, "This idempotency key has made a post with another text or other data.").In("idempotencyKey")
	}
	return p, nil
}

// ownPost locks a post for a change by its author, inside tx. The error for a post
// of another author is NotFound or Forbidden, depending on whether the viewer may
// see it.
func (f *Feed) ownPost(ctx context.Context, tx *ent.Tx, v account.Viewer, id int64) (*ent.User, *ent.Post, error) {
	author, err := tx.User.Query().Where(user.ID(v.ID)).Modify(rows.ForUpdate).Only(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("lock author: %w", err)
	}
	p, err := lockPost(ctx, tx, id)
	if err == nil && p.AuthorID != v.ID {
		err = refusal.ErrNoSuchPost
	}
	return author, p, err
}

// mayChange tells NotFound from Forbidden before a change of a post: a viewer who
// may see it learns that it is another author's.
func (f *Feed) mayChange(ctx context.Context, v account.Viewer, id int64) error {
	if v.ID == 0 {
		return refusal.ErrSignIn
	}
	p, err := f.Post(ctx, v, id)
	if err != nil {
		return err
	}
	if p.AuthorID != v.ID {
		return refusal.New(refusal.NotTheAuthor, "Only its author may change a post.")
	}
	return nil
}

// SetVisibility changes who may see the viewer's post. From its return on no read
// shows the post to a viewer from whom it is hidden. Errors: Unauthenticated,
// NotFound; Forbidden, also for a post that a moderator hid.
//
// Cost: one query and one short transaction, whatever the audience.
func (f *Feed) SetVisibility(ctx context.Context, v account.Viewer, id int64, to schema.Visibility) (*ent.Post, error) {
	if err := f.mayChange(ctx, v, id); err != nil {
		return nil, err
	}
	var p *ent.Post
	err := rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		author, found, err := f.ownPost(ctx, tx, v, id)
		if err != nil {
			return err
		}
		if p = found; p.HiddenByModerators() {
			return refusal.New(refusal.HiddenPost, "A moderator hid the post: its visibility cannot be changed.")
		}
		if p.Visibility == to {
			return nil
		}
		return f.changeVisibility(ctx, tx, author, p, to)
	})
	f.posts.Narrowed()
	return p, err
}

// lockPost locks the row of a post, whoever may see it. Error: NotFound.
func lockPost(ctx context.Context, tx *ent.Tx, id int64) (*ent.Post, error) {
	p, err := tx.Post.Query().Where(post.ID(id), rows.ForUpdate, rows.WithLikes).Only(ctx)
	if ent.IsNotFound(err) || err == nil && p.Visibility == schema.Deleted {
		return nil, refusal.ErrNoSuchPost
	}
	return p, rows.Wrap("lock post", err)
}

// changeVisibility gives a post another visibility, under locks on it and its author.
func (f *Feed) changeVisibility(ctx context.Context, tx *ent.Tx, author *ent.User, p *ent.Post, to schema.Visibility) error {
	from := p.Visibility
	// The builder of ent refuses what is no value of the API.
	if _, err := tx.ExecContext(ctx, "UPDATE posts SET visibility = $1 WHERE id = $2", string(to), p.ID); err != nil {
		return fmt.Errorf("set visibility: %w", err)
	}
	p.Visibility = to
	count := visibility.AddToPostCount(visibility.AddToPostCount(tx.User.UpdateOneID(author.ID), from, -1), to, 1)
	if err := count.Exec(ctx); err != nil {
		return fmt.Errorf("count post: %w", err)
	}
	if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostUpdated, author, p); err != nil {
		return err
	}
	return f.enqueuePost(ctx, tx, job.PostChanged, author, job.Post{Post: p.ID, Author: author.ID, From: from, To: to})
}

// manyLikes is how many likes DeletePost deletes at the most; a job deletes more.
const manyLikes = 1000

// DeletePost deletes the viewer's post and its likes. From its return on no
// read shows it. Errors: Unauthenticated, NotFound, Forbidden.
//
// Cost: as SetVisibility, and a row for each like, of a thousand at the most. The row of a
// post with more stays, without its text, until a job has deleted the likes.
func (f *Feed) DeletePost(ctx context.Context, v account.Viewer, id int64) error {
	if err := f.mayChange(ctx, v, id); err != nil {
		return err
	}
	err := rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		author, p, err := f.ownPost(ctx, tx, v, id)
		if err != nil {
			return err
		}
		if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostDeleted, author, p); err != nil {
			return err
		}
		if err := f.erase(ctx, tx, p); err != nil {
			return fmt.Errorf("delete post: %w", err)
		}
		if _, err := tx.Delivery.Delete().Where(delivery.ID(id)).Exec(ctx); err != nil {
			return fmt.Errorf("delete receipt: %w", err)
		}
		last := author.LastPostID
		if last == id {
			last, err = tx.Post.Query().Where(post.AuthorID(v.ID), post.VisibilityNEQ(schema.Deleted)).Order(ent.Desc(post.FieldID)).FirstID(ctx)
			if err != nil && !ent.IsNotFound(err) {
				return fmt.Errorf("find newest post: %w", err)
			}
		}
		if err := visibility.AddToPostCount(tx.User.UpdateOneID(v.ID), p.Visibility, -1).SetLastPostID(last).Exec(ctx); err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		return f.enqueuePost(ctx, tx, job.PostChanged, author, job.Post{Post: id, Author: v.ID, From: p.Visibility})
	})
	f.posts.Narrowed()
	if err != nil {
		return err
	}
	f.home.RemoveOwn(ctx, v.ID, id)
	return nil
}

// erase deletes a post, or leaves that to a job of the transaction.
func (f *Feed) erase(ctx context.Context, tx *ent.Tx, p *ent.Post) error {
	if p.LikeCount <= manyLikes {
		return tx.Post.DeleteOne(p).Exec(ctx)
	}
	if _, err := tx.ExternalPost.Delete().Where(externalpost.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if err := rows.KeepPostData(ctx, tx, p.ID, ent.NoData); err != nil {
		return err
	}
	if _, err := tx.PostVersion.Delete().Where(postversion.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.PostTag.Delete().Where(posttag.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE posts SET visibility = $1, text = '' WHERE id = $2", string(schema.Deleted), p.ID); err != nil {
		return err
	}
	return f.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.PostErased, job.Post{Post: p.ID, Author: p.AuthorID})
}

// Post returns one post. Error: NotFound, also when the viewer may not see it. It
// costs one query.
func (f *Feed) Post(ctx context.Context, v account.Viewer, id int64) (*ent.Post, error) {
	posts, err := f.Posts(ctx, v, []int64{id})
	if err != nil {
		return nil, err
	}
	if posts[0] == nil {
		return nil, refusal.ErrNoSuchPost
	}
	return posts[0], nil
}

// ReportedPost returns a post for a report of a viewer who may not see it. Moderators read the
// report, the viewer does not. Error: NotFound. It costs one query.
func (f *Feed) ReportedPost(ctx context.Context, id int64) (*ent.Post, error) {
	p, err := f.db.Post.Query().Where(post.ID(id), post.VisibilityNEQ(schema.Deleted)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchPost
	}
	return p, rows.Wrap("find reported post", err)
}

// Posts returns the posts of the ids, in their order; nil where there is none or
// none that the viewer may see. It costs one query.
func (f *Feed) Posts(ctx context.Context, v account.Viewer, ids []int64) ([]*ent.Post, error) {
	return f.posts.Posts(ctx, visibility.Direct, v.ID, ids, visibility.Likes)
}

// Data returns the own fields of the app in posts that the viewer was shown, in their order.
// It costs one query.
func (f *Feed) Data(ctx context.Context, v account.Viewer, posts []*ent.Post) ([]*string, error) {
	return f.posts.Data(ctx, v.ID, rows.PostIDs(posts))
}

// Deliveries returns the receipts of the posts, in their order: nil for anyone but
// the author, and before the fan-out has begun. It costs one query.
func (f *Feed) Deliveries(ctx context.Context, v account.Viewer, posts []*ent.Post) ([]*ent.Delivery, error) {
	ids := make([]int64, len(posts)) // 0 for a post of another author
	for i, p := range posts {
		if v.ID == p.AuthorID {
			ids[i] = p.ID
		}
	}
	list, err := f.db.Delivery.Query().Where(rows.Among(delivery.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return rows.InOrder(ids, list, func(d *ent.Delivery) int64 { return d.ID }), nil
}

// enqueuePost puts the job into the pool for the size of the author's audience.
func (f *Feed) enqueuePost(ctx context.Context, tx *ent.Tx, kind string, author *ent.User, j job.Post) error {
	pool := queue.Small
	if author.FollowerCount >= f.cfg.LargeAudience {
		pool = queue.Large
	}
	return f.cfg.Queue.Enqueue(ctx, tx, pool, kind, j)
}

// Bounds of the own fields of an app, in posts and users: bytes and levels.
const (
	MaxData      = text.MaxData
	MaxDataDepth = text.MaxDataDepth
)

// MaxKey bounds the bytes of an idempotency key, and keysLast is how long the
// server remembers one.
const (
	MaxKey   = 200
	keysLast = 24 * time.Hour
)

// PurgeIdempotencyKeys deletes the keys that are older than a day, and reports how
// many.
//
// Cost: a deletion by index, as large as what has expired.
func PurgeIdempotencyKeys(ctx context.Context, db *ent.Client, now time.Time) (int, error) {
	n, err := db.IdempotencyKey.Delete().Where(idempotencykey.CreatedAtLTE(now.Add(-keysLast))).Exec(ctx)
	return n, rows.Wrap("purge idempotency keys", err)
}

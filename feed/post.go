package feed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"

	"tideline/ent"
	"tideline/ent/delivery"
	"tideline/ent/externalpost"
	"tideline/ent/hiddenuser"
	"tideline/ent/idempotencykey"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/posttag"
	"tideline/ent/postversion"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/errs"
	"tideline/queue"
)

// Draft is the input of CreatePost.
type Draft struct {
	Text string
	// ReplyTo and QuoteOf are the posts that this one replies to, and quotes; 0 for none.
	ReplyTo, QuoteOf int64
	// ReplyAudience and QuoteAudience say who may reply to the post and quote it; "" for everyone
	// who sees it. They must be "" for a reply, because the audiences of its root hold.
	ReplyAudience, QuoteAudience schema.Audience
	Visibility                   *schema.Visibility // nil means the author's default
	Data                         *string            // the app's own fields, a JSON object; nil for none
	// IdempotencyKey, if not empty, makes a repeated call return the post of the first call.
	IdempotencyKey string
}

// CreatePost creates a post. The viewer's next read shows it. Errors: Unauthenticated, BadInput;
// NotFound if the viewer may not see the post that it replies to or quotes; Forbidden if the viewer
// is not in the audience of that post; Conflict if the idempotency key was used for a post that has another
// text, other data or other links, or that has been deleted.
//
// Cost, for any number of followers: a transaction of two round trips, one of them with the author
// locked, and one round trip to Redis for the author's own two feeds. A job fans the post out. A
// reply or quote takes three to five round trips more, and an idempotency key one more query. A repeated call
// costs at most six queries by index, and the round trip to Redis.
func (f *Feed) CreatePost(ctx context.Context, v session.Viewer, d Draft) (*ent.Post, error) {
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
	p, err := f.firstPost(ctx, v, body, data, d)
	if p == nil && err == nil {
		p, err = f.insertPost(ctx, v, body, data, d)
	}
	if sqlgraph.IsUniqueConstraintError(err) {
		// A concurrent call with the same key may have come first. Otherwise another constraint
		// was violated, and the error is returned.
		if existing, findErr := f.firstPost(ctx, v, body, data, d); existing != nil || findErr != nil {
			p, err = existing, findErr
		}
	}
	if err != nil {
		return nil, err
	}
	// Also for a post that already existed: the process of the first call may have died right
	// after its commit.
	f.cfg.Home.Own.Add(ctx, p.AuthorID, p.ID)
	return p, nil
}

// firstPost returns the post that an earlier call with the draft's key created, or nil. It returns
// Conflict if that post has another text or other data, or replies to or quotes another post: a client
// that reuses its keys would lose posts.
func (f *Feed) firstPost(ctx context.Context, v session.Viewer, body, data string, d Draft) (*ent.Post, error) {
	db := f.cfg.DB
	if d.IdempotencyKey == "" {
		return nil, nil
	}
	k, err := db.IdempotencyKey.Query().Where(idempotencykey.UserID(v.ID), idempotencykey.Key(d.IdempotencyKey)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find idempotency key: %w", err)
	}
	p, err := db.Post.Query().Where(post.ID(k.PostID), rows.WithCounts).Only(ctx)
	if ent.IsNotFound(err) || err == nil && p.Visibility == schema.Deleted {
		return nil, refusal.New(refusal.KeyUsed, "The post that was created with this idempotency key has been deleted.").In("idempotencyKey")
	}
	if err != nil {
		return nil, fmt.Errorf("find first post: %w", err)
	}
	found, err := rows.PostData(ctx, db.PostData, []int64{p.ID})
	if err != nil {
		return nil, err
	}
	p.Data = found[0]
	firstText, firstData := p.Text, *p.Data
	if p.EditedAt > 0 {
		version, err := firstVersion(ctx, db, p.ID)
		if version == nil { // an error, or the version is no longer kept and cannot be compared
			return p, err
		}
		firstText, firstData = version.Text, version.Data
	}
	if firstText != body || firstData != data {
		return nil, refusal.New(refusal.KeyUsed, "This idempotency key was used for a post with another text or other data.").In("idempotencyKey")
	}
	for _, link := range [][2]int64{{d.ReplyTo, p.ParentID}, {d.QuoteOf, p.QuoteOf}} {
		if other, err := f.isOther(ctx, v, link[0], link[1]); other || err != nil {
			return nil, cmp.Or(err, error(refusal.New(refusal.KeyUsed, "This idempotency key was used for a post that replies to or quotes another post.").In("idempotencyKey")))
		}
	}
	return p, nil
}

// isOther reports whether the post given for a reply or quote is not the one that the first call linked.
// A repost stands for its original. A post that the viewer may not see may have been it: the answer must not
// tell whether it exists.
func (f *Feed) isOther(ctx context.Context, v session.Viewer, given, linked int64) (bool, error) {
	if given == linked || given == 0 || linked == 0 {
		return given != linked, nil
	}
	found, err := f.cfg.Visibility.Posts(ctx, visibility.Direct, v.ID, []int64{given}, visibility.Bare)
	if err != nil || found[0] == nil {
		return false, errs.Wrap(err, "find linked post")
	}
	return found[0].RepostOf != linked, nil
}

// ownPost locks a post and its author in tx, for a change by the author. Error: NotFound, also
// for a post of another author.
func (f *Feed) ownPost(ctx context.Context, tx *ent.Tx, v session.Viewer, id int64) (*ent.User, *ent.Post, error) {
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

// mayChange checks that the viewer is the author of the post. It returns NotFound if the viewer
// may not see the post, and Forbidden if the post belongs to another author.
func (f *Feed) mayChange(ctx context.Context, v session.Viewer, id int64) error {
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

// SetVisibility changes who may see the viewer's post. Once it has returned, no read shows the
// post to a viewer who may no longer see it. Errors: Unauthenticated, NotFound; Forbidden, also
// for a post that a moderator hid.
//
// Cost: one query and one short transaction, for any number of followers.
func (f *Feed) SetVisibility(ctx context.Context, v session.Viewer, id int64, to schema.Visibility) (*ent.Post, error) {
	if err := f.mayChange(ctx, v, id); err != nil {
		return nil, err
	}
	var p *ent.Post
	err := rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
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
	// The commit may have succeeded even if it returned an error.
	f.cfg.Visibility.VisibilityReduced()
	return p, err
}

// lockPost locks the row of a post. It does not check whether the viewer may see the post. Error:
// NotFound.
func lockPost(ctx context.Context, tx *ent.Tx, id int64) (*ent.Post, error) {
	p, err := tx.Post.Query().Where(post.ID(id), rows.ForUpdate, rows.WithCounts).Only(ctx)
	if ent.IsNotFound(err) || err == nil && p.Visibility == schema.Deleted {
		return nil, refusal.ErrNoSuchPost
	}
	return p, errs.Wrap(err, "lock post")
}

// changeVisibility sets the visibility of a post. The post and its author must be locked.
func (f *Feed) changeVisibility(ctx context.Context, tx *ent.Tx, author *ent.User, p *ent.Post, to schema.Visibility) error {
	from := p.Visibility
	// This is not a statement of ent because ent rejects the values of hidden posts, such as
	// HIDDEN_PUBLIC, which are not values of the API.
	if _, err := tx.ExecContext(ctx, "UPDATE posts SET visibility = $1 WHERE id = $2", string(to), p.ID); err != nil {
		return fmt.Errorf("set visibility: %w", err)
	}
	p.Visibility = to
	count := visibility.AddToPostCount(visibility.AddToPostCount(tx.User.UpdateOneID(author.ID), p, from, -1), p, to, 1)
	if err := count.Exec(ctx); err != nil {
		return fmt.Errorf("count post: %w", err)
	}
	if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostUpdated, author, p); err != nil {
		return err
	}
	if err := f.baseChanged(ctx, tx, p, job.Post{}); err != nil {
		return err
	}
	return f.enqueuePost(ctx, tx, author, job.Post{Post: p.ID, Author: author.ID, From: from, To: to}.ToldToConversation(p))
}

// baseChanged enqueues the job that tells clients of the replies, reposts and quotes of p, if there are
// any, after p was shown, hidden, deleted or changed as change says with Edited and Card. p must be
// locked, so that no other transaction can add a reply, repost or quote before tx ends.
//
// Cost: at most three look-ups by index.
func (f *Feed) baseChanged(ctx context.Context, tx *ent.Tx, p *ent.Post, change job.Post) error {
	for _, of := range dependentsOf(p.ID, change) {
		exist, err := tx.Post.Query().Where(of).Exist(ctx)
		if err != nil {
			return fmt.Errorf("look for replies, reposts and quotes: %w", err)
		}
		if exist {
			change.Post, change.Author = p.ID, p.AuthorID
			return f.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.BaseChanged, change)
		}
	}
	return nil
}

// manyLikes is the largest number of likes that DeletePost deletes in its transaction. If a post has
// more, a job deletes them.
const manyLikes = 1000

// DeletePost deletes the viewer's post and its likes. Once it has returned, no read shows the
// post. Errors: Unauthenticated, NotFound, Forbidden.
//
// Cost: as SetVisibility, the deletion of up to a thousand likes, a query by index if the post is the
// newest of its author, and one round trip to Redis for the author's own two feeds. If the post has
// more likes, its row stays without its content until a job has deleted the likes.
func (f *Feed) DeletePost(ctx context.Context, v session.Viewer, id int64) error {
	if err := f.mayChange(ctx, v, id); err != nil {
		return err
	}
	return f.deletePost(ctx, v, id)
}

// deletePost is DeletePost for a post that the viewer is known to have written. Error: NotFound.
func (f *Feed) deletePost(ctx context.Context, v session.Viewer, id int64) error {
	err := rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
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
		if err := visibility.AddToPostCount(tx.User.UpdateOneID(v.ID), p, p.Visibility, -1).SetLastPostID(last).Exec(ctx); err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		if err := f.baseChanged(ctx, tx, p, job.Post{}); err != nil {
			return err
		}
		if err := f.uncount(ctx, tx, counted(p)); err != nil {
			return err
		}
		return f.enqueuePost(ctx, tx, author, job.Post{Post: id, Author: v.ID, From: p.Visibility}.ToldToConversation(p))
	})
	// The commit may have succeeded even if it returned an error.
	f.cfg.Visibility.VisibilityReduced()
	if err != nil {
		return err
	}
	f.cfg.Home.Own.Remove(ctx, v.ID, id)
	return nil
}

// erase deletes a post. If the post has more than manyLikes, erase instead deletes its content, hides
// its row with the visibility Deleted, and enqueues a job that deletes the likes and the row.
func (f *Feed) erase(ctx context.Context, tx *ent.Tx, p *ent.Post) error {
	if p.LikeCount <= manyLikes {
		return tx.Post.DeleteOne(p).Exec(ctx)
	}
	if _, err := tx.ExternalPost.Delete().Where(externalpost.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if err := rows.KeepPostData(ctx, tx, p.ID, ent.NoData); err != nil { // deletes the data
		return err
	}
	if _, err := tx.PostVersion.Delete().Where(postversion.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.PostTag.Delete().Where(posttag.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.PostMention.Delete().Where(postmention.PostID(p.ID)).Exec(ctx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE posts SET visibility = $1, text = '' WHERE id = $2", string(schema.Deleted), p.ID); err != nil {
		return err
	}
	return f.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.PostErased, job.Post{Post: p.ID, Author: p.AuthorID})
}

// Post returns a post. Error: NotFound, also if the viewer may not see it. It costs one query.
func (f *Feed) Post(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	p, err := f.postIfSeen(ctx, v, id)
	if p == nil && err == nil {
		err = refusal.ErrNoSuchPost
	}
	return p, err
}

// postIfSeen returns a post, or nil if the viewer may not see it. It costs one query.
func (f *Feed) postIfSeen(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	posts, err := f.Posts(ctx, v, []int64{id})
	if err != nil {
		return nil, err
	}
	return posts[0], nil
}

// ReportedPost returns a post that a viewer reports without being allowed to see it. Only
// moderators read the report. Error: NotFound. It costs one query.
func (f *Feed) ReportedPost(ctx context.Context, id int64) (*ent.Post, error) {
	p, err := f.cfg.DB.Post.Query().Where(post.ID(id), post.VisibilityNEQ(schema.Deleted)).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchPost
	}
	return p, errs.Wrap(err, "find reported post")
}

// ReportedPosts returns the reported posts with the ids, in their order, also hidden ones. An entry is nil
// if the post is deleted, or its author is being deleted. Only moderators read them.
//
// Cost: one query.
func (f *Feed) ReportedPosts(ctx context.Context, ids []int64) ([]*ent.Post, error) {
	list, err := f.cfg.DB.Post.Query().Where(rows.Among(post.FieldID, ids), shownToModerators).All(ctx)
	return rows.InOrder(ids, list, func(p *ent.Post) int64 { return p.ID }), errs.Wrap(err, "read reported posts")
}

const (
	// MostReportedAncestors is how many posts above a reported post ReportedAncestors returns, besides
	// the root.
	MostReportedAncestors = 50
	// MostReportedReplies is how many replies to a reported post ReportedReplies returns.
	MostReportedReplies = 50
)

// ReportedAncestors returns the posts that lead to a reported post, root first, also hidden ones:
// the parent, the posts above it, at most MostReportedAncestors in all, and the root. It leaves out posts
// of users who are being deleted. Only moderators read them.
//
// Cost: none without a parent; otherwise two queries, with a look-up an ancestor each.
func (f *Feed) ReportedAncestors(ctx context.Context, parent, root int64) ([]*ent.Post, error) {
	if parent == 0 {
		return []*ent.Post{}, nil
	}
	above, err := f.cfg.Visibility.AncestorIDs(ctx, parent, MostReportedAncestors)
	if err != nil {
		return nil, err
	}
	if root != 0 && !slices.Contains(above, root) { // a post in between is gone, or there are more
		above = append(above, root)
	}
	slices.Reverse(above)
	list, err := f.cfg.DB.Post.Query().Where(rows.Among(post.FieldID, above), shownToModerators).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the conversation of a reported post: %w", err)
	}
	ordered := rows.InOrder(above, list, func(p *ent.Post) int64 { return p.ID })
	return slices.DeleteFunc(ordered, func(p *ent.Post) bool { return p == nil }), nil
}

// ReportedReplies returns the direct replies to a reported post, oldest first, at most
// MostReportedReplies, also hidden ones. It leaves out posts of users who are being deleted. Only
// moderators read them.
//
// Cost: one query by index.
func (f *Feed) ReportedReplies(ctx context.Context, id int64) ([]*ent.Post, error) {
	list, err := f.cfg.DB.Post.Query().Where(post.ParentID(id), shownToModerators).Order(ent.Asc(post.FieldID)).Limit(MostReportedReplies).All(ctx)
	return list, errs.Wrap(err, "read replies to a reported post")
}

// shownToModerators is the condition for posts that moderators may read in a report: neither they nor
// their authors are deleted, or being deleted.
func shownToModerators(s *sql.Selector) {
	hidden := sql.Table(hiddenuser.Table)
	s.Where(sql.And(sql.NEQ(s.C(post.FieldVisibility), string(schema.Deleted)), sql.NotExists(sql.Select(hidden.C(hiddenuser.FieldID)).From(hidden).Where(sql.And(
		sql.ColumnsEQ(hidden.C(hiddenuser.FieldID), s.C(post.FieldAuthorID)),
		sql.NotIn(hidden.C(hiddenuser.FieldState), string(hiddenuser.StateLEAVING), string(hiddenuser.StateSUSPENDED)))))))
}

// Posts returns the posts with the ids, in their order. An entry is nil if there is no such post
// or the viewer may not see it. It costs as Reader.Posts.
func (f *Feed) Posts(ctx context.Context, v session.Viewer, ids []int64) ([]*ent.Post, error) {
	return f.PostsWith(ctx, v, ids, visibility.Likes)
}

// PostsWith is Posts with a choice of the fields that are read with the posts.
func (f *Feed) PostsWith(ctx context.Context, v session.Viewer, ids []int64, with visibility.Fields) ([]*ent.Post, error) {
	return f.cfg.Visibility.Posts(ctx, visibility.Direct, v.ID, ids, with)
}

// Data returns the app's own fields of the posts, in their order. The posts must have been read
// for the viewer. It costs one query.
func (f *Feed) Data(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]*string, error) {
	return f.cfg.Visibility.Data(ctx, v.ID, rows.PostIDs(posts))
}

// Deliveries returns the receipts of the fan-outs of the posts, in the order of the posts. An entry is
// nil if the viewer is not the author, or if the fan-out has not begun. It costs one query.
func (f *Feed) Deliveries(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]*ent.Delivery, error) {
	ids := make([]int64, len(posts)) // 0 for a post of another author
	for i, p := range posts {
		if v.ID == p.AuthorID {
			ids[i] = p.ID
		}
	}
	list, err := f.cfg.DB.Delivery.Query().Where(rows.Among(delivery.FieldID, ids)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return rows.InOrder(ids, list, func(d *ent.Delivery) int64 { return d.ID }), nil
}

// enqueuePost enqueues a fan-out of the post in the pool for the size of the author's audience.
func (f *Feed) enqueuePost(ctx context.Context, tx *ent.Tx, author *ent.User, j job.Post) error {
	return f.cfg.Queue.Enqueue(ctx, tx, f.poolFor(author), job.PostChanged, j)
}

func (f *Feed) poolFor(author *ent.User) queue.Pool {
	if author.FollowerCount >= f.cfg.LargeAudience {
		return queue.Large
	}
	return queue.Small
}

// Bounds of the app's own fields in posts and users: bytes and nesting levels.
const (
	MaxData      = text.MaxData
	MaxDataDepth = text.MaxDataDepth
)

// MaxKey is the maximum length of an idempotency key in bytes. keyLifetime is how long the server
// remembers a key.
const (
	MaxKey      = 200
	keyLifetime = 24 * time.Hour
)

// PurgeIdempotencyKeys deletes keys that are older than a day and returns the number of deleted keys.
//
// Cost: one deletion by index, proportional to the expired keys.
func PurgeIdempotencyKeys(ctx context.Context, db *ent.Client, now time.Time) (int, error) {
	n, err := db.IdempotencyKey.Delete().Where(idempotencykey.CreatedAtLTE(now.Add(-keyLifetime))).Exec(ctx)
	return n, errs.Wrap(err, "purge idempotency keys")
}

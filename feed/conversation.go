package feed

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect/sql/sqlgraph"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/postmention"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

// link sets the ids of the posts to which a new post is linked: the parent and the root of a reply, the
// original of a repost, and the quoted post. It checks in tx that the viewer may reply and quote. Other
// transactions cannot change the linked posts before tx ends. The author must be locked.
func (f *Feed) link(ctx context.Context, tx *ent.Tx, v session.Viewer, p *ent.Post, d Draft) error {
	if d.ReplyTo != 0 {
		if d.ReplyAudience != "" || d.QuoteAudience != "" {
			return refusal.New(refusal.Contradiction, "A reply has the audiences of its root.").In("replyAudience")
		}
		parent, root, err := f.subject(ctx, tx, v, d.ReplyTo, "replyTo")
		if err != nil {
			return err
		}
		admitted, err := f.admits(ctx, tx, v, root, root.ReplyAudience)
		if err != nil {
			return err
		}
		if !admitted {
			return refusal.New(refusal.RepliesLimited, "The author of the conversation lets only some users reply.").In("replyTo")
		}
		p.ParentID, p.ParentAuthorID, p.RootID = parent.ID, parent.AuthorID, root.ID
	}
	if d.QuoteOf != 0 {
		quoted, root, err := f.subject(ctx, tx, v, d.QuoteOf, "quoteOf")
		if err != nil {
			return err
		}
		admitted := quoted.AuthorID == v.ID
		if !admitted {
			if admitted, err = f.admits(ctx, tx, v, root, root.QuoteAudience); err != nil {
				return err
			}
		}
		if !admitted {
			return refusal.New(refusal.QuotesLimited, "The author lets only some users quote the post.").In("quoteOf")
		}
		p.QuoteOf = quoted.ID
	}
	if p.RepostOf != 0 {
		original, _, err := f.subject(ctx, tx, v, p.RepostOf, "postId")
		if err != nil {
			return err
		}
		p.RepostOf, p.RootID = original.ID, original.RootID
	}
	return nil
}

// subject returns a post that the viewer wants to reply to, quote or repost, and its root, which may
// be the post itself. A repost stands for its original. Nobody can change the posts until tx ends.
// Error: NotFound if the viewer may not see both.
func (f *Feed) subject(ctx context.Context, tx *ent.Tx, v session.Viewer, id int64, field string) (p, root *ent.Post, err error) {
	read := f.cfg.Visibility.In(tx)
	if err := read.Lock(ctx, id); err != nil {
		return nil, nil, err
	}
	missing := refusal.New(refusal.NoSuchPost, "There is no such post.").In(field)
	p, err = read.Post(ctx, v.ID, id)
	if err == nil && p != nil && p.RepostOf != 0 {
		p, err = read.Post(ctx, v.ID, p.RepostOf)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		return nil, nil, missing
	case p.RootID == 0:
		return p, p, nil
	}
	if root, err = read.Post(ctx, v.ID, p.RootID); err != nil {
		return nil, nil, err
	}
	if root == nil { // only the author of the reply still sees it
		return nil, nil, missing
	}
	return p, root, nil
}

// admits reports whether the viewer, who sees the root, is in an audience of it.
func (f *Feed) admits(ctx context.Context, tx *ent.Tx, v session.Viewer, root *ent.Post, to schema.Audience) (bool, error) {
	if root.AuthorID == v.ID {
		return true, nil
	}
	var relation visibility.Relation
	var mentioned bool
	var err error
	switch to {
	case schema.OnlyFollowers, schema.OnlyMutuals:
		relation, err = f.cfg.Visibility.In(tx).Relation(ctx, v.ID, root.AuthorID)
	case schema.OnlyMentioned:
		mentioned, err = tx.PostMention.Query().Where(postmention.PostID(root.ID), postmention.UserID(v.ID)).Exist(ctx)
	}
	return visibility.InAudience(to, relation, mentioned), errs.Wrap(err, "look for the audience")
}

// SetAudience changes who may reply to the viewer's post, and who may quote it; nil leaves an
// audience as it is. Replies and quotes that exist stay. Errors: Unauthenticated, NotFound,
// Forbidden; BadInput for a reply or a repost.
//
// Cost: one query and one short transaction.
func (f *Feed) SetAudience(ctx context.Context, v session.Viewer, id int64, reply, quote *schema.Audience) (*ent.Post, error) {
	if err := f.mayChange(ctx, v, id); err != nil {
		return nil, err
	}
	err := rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		_, p, err := f.ownPost(ctx, tx, v, id)
		if err != nil {
			return err
		}
		if visibility.DependsOnOthers(p) {
			return refusal.New(refusal.Contradiction, "A reply has the audiences of its root, and a repost those of its original.").In("postId")
		}
		update := tx.Post.UpdateOneID(id).SetNillableReplyAudience(reply).SetNillableQuoteAudience(quote)
		return errs.Wrap(update.Exec(ctx), "set audience")
	})
	if err != nil {
		return nil, err
	}
	return f.Post(ctx, v, id)
}

// Repost passes a post on to those who see the viewer's posts, and returns the repost. A repost of a
// repost leads to the original. A user has at most one repost of an original: a repeated call
// returns it and changes nothing. A nil visibility means the viewer's default. Errors:
// Unauthenticated, NotFound.
//
// Cost: a transaction of four to six round trips; a repeated call takes one query more.
func (f *Feed) Repost(ctx context.Context, v session.Viewer, id int64, to *schema.Visibility) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	for {
		p, err := f.insertRepost(ctx, v, id, to)
		if sqlgraph.IsUniqueConstraintError(err) { // an earlier call
			p, err = f.cfg.DB.Post.Query().Where(post.AuthorID(v.ID), post.RepostOf(p.RepostOf), rows.WithCounts).Only(ctx)
			if ent.IsNotFound(err) {
				continue // undone in the meantime
			}
		}
		if err != nil {
			return nil, fmt.Errorf("repost: %w", err)
		}
		f.cfg.Home.Own.Add(ctx, v.ID, p.ID)
		return p, nil
	}
}

// insertRepost inserts a repost of the post, or of its original, and returns it. If the viewer has
// one already, the error violates a unique constraint, and the post returned has RepostOf alone.
func (f *Feed) insertRepost(ctx context.Context, v session.Viewer, id int64, to *schema.Visibility) (p *ent.Post, err error) {
	made, err := f.cfg.IDs.Next()
	if err != nil {
		return nil, err
	}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		p = &ent.Post{ID: made, AuthorID: v.ID, Data: new(ent.NoData), RepostOf: id}
		if to != nil {
			p.Visibility = *to
		}
		return f.insertInTx(ctx, tx, v, p, Draft{})
	})
	return p, err
}

// UndoRepost deletes the viewer's repost. id is the original, or the repost itself. It returns the
// original, or nil if the viewer may no longer see it. Without a repost it changes nothing, and returns the
// post with the id in the same way. Error: Unauthenticated.
//
// Cost: two queries, and as DeletePost.
func (f *Feed) UndoRepost(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	p, err := f.cfg.DB.Post.Query().Where(post.AuthorID(v.ID), post.RepostOfNotNil(), post.Or(post.RepostOf(id), post.ID(id))).Only(ctx)
	if ent.IsNotFound(err) {
		return f.postIfSeen(ctx, v, id)
	}
	if err != nil {
		return nil, fmt.Errorf("find repost: %w", err)
	}
	if err := f.deletePost(ctx, v, p.ID); err != nil && refusal.ReasonOf(err) != refusal.NoSuchPost {
		return nil, err
	}
	return f.postIfSeen(ctx, v, p.RepostOf)
}

// WithdrawQuote makes a post that quotes the viewer's post show that the quote was withdrawn. It
// cannot be undone. The call may be repeated. It returns the post that quotes, or
// nil if the viewer may not see it. Errors:
// Unauthenticated; NotFound if there is no such post, or if it does not quote the viewer's.
//
// Cost: one query and a short transaction.
func (f *Feed) WithdrawQuote(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	found, err := f.cfg.DB.Post.Query().Where(post.ID(id), post.VisibilityNEQ(schema.Deleted), post.QuoteOfNotNil()).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchPost
	}
	if err != nil {
		return nil, fmt.Errorf("find quote: %w", err)
	}
	mine, err := f.cfg.DB.Post.Query().Where(post.ID(found.QuoteOf), post.AuthorID(v.ID)).Exist(ctx)
	if err != nil {
		return nil, fmt.Errorf("find quoted post: %w", err)
	}
	if !mine {
		return nil, refusal.ErrNoSuchPost
	}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		author, err := f.lockAuthor(ctx, tx, found.AuthorID)
		if err != nil {
			return err
		}
		p, err := lockPost(ctx, tx, id)
		if err != nil || p.QuoteWithdrawn {
			return err
		}
		if err := f.uncount(ctx, tx, []count{{rows.Quotes, p.QuoteOf}}); err != nil {
			return err
		}
		if p.ChangedAt, err = f.changedNow(p); err != nil {
			return err
		}
		if err := tx.Post.UpdateOneID(id).SetQuoteWithdrawn(true).SetChangedAt(p.ChangedAt).Exec(ctx); err != nil {
			return fmt.Errorf("withdraw quote: %w", err)
		}
		p.QuoteWithdrawn = true
		if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostUpdated, author, p); err != nil {
			return err
		}
		if err := f.baseChanged(ctx, tx, p, job.Post{Card: true}); err != nil {
			return err
		}
		return f.enqueuePost(ctx, tx, author, job.Post{Post: id, Author: author.ID, From: p.Visibility, To: p.Visibility, Edited: true}.ToldToConversation(p))
	})
	f.cfg.Visibility.VisibilityReduced()
	if err != nil {
		return nil, err
	}
	return f.postIfSeen(ctx, v, id)
}

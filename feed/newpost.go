package feed

import (
	"context"
	"fmt"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/tag"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/internal/pipeline"
)

// insertPost writes the post, the author's counters, the idempotency key and the job, all in one
// transaction.
func (f *Feed) insertPost(ctx context.Context, v session.Viewer, body, data string, d Draft) (p *ent.Post, err error) {
	id, err := f.cfg.IDs.Next()
	if err != nil {
		return nil, err
	}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		p = &ent.Post{ID: id, AuthorID: v.ID, Text: body, Data: &data, ReplyAudience: d.ReplyAudience, QuoteAudience: d.QuoteAudience}
		if d.Visibility != nil {
			p.Visibility = *d.Visibility
		}
		return f.insertInTx(ctx, tx, v, p, d)
	})
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	return p, nil
}

// insertInTx inserts the post and everything that commits with it. p.RepostOf is set for a repost.
// insertInTx sets p.Visibility if the post is to have the author's default. It locks the author first, then makes all checks, then
// writes. It commits tx together with the writes where the database can.
func (f *Feed) insertInTx(ctx context.Context, tx *ent.Tx, v session.Viewer, p *ent.Post, d Draft) error {
	p.ParentID = d.ReplyTo
	var author ent.User
	lock := pipeline.Pipeline{Dialect: f.cfg.Dialect}
	visibility.CountNewPost(&lock, p, &author)
	if err := lock.Send(ctx, tx); err != nil {
		return fmt.Errorf("count post: %w", err)
	}
	if author.ID == 0 { // hidden or deleted while the call was running
		return refusal.ErrSignIn
	}
	if err := f.link(ctx, tx, v, p, d); err != nil {
		return err
	}
	mentions, err := mentionsIn(ctx, tx, p, nil)
	if err != nil {
		return err
	}

	w := pipeline.Pipeline{Dialect: f.cfg.Dialect, Commit: true}
	insert(&w, p)
	for _, t := range tag.In(p.Text) {
		w.Exec("INSERT INTO post_tags (post_id, tag) VALUES ($1, $2)", p.ID, t)
	}
	for _, m := range mentions {
		w.Exec(`INSERT INTO post_mentions (post_id, user_id, start, "end") VALUES ($1, $2, $3, $4)`, p.ID, m.user, m.Start, m.End)
	}
	if *p.Data != ent.NoData {
		w.Exec("INSERT INTO post_data (post_id, data) VALUES ($1, $2)", p.ID, *p.Data)
	}
	if d.IdempotencyKey != "" {
		w.Exec("INSERT INTO idempotency_keys (user_id, key, post_id, created_at) VALUES ($1, $2, $3, $4)", p.AuthorID, d.IdempotencyKey, p.ID, time.Now().UTC())
	}
	if err := f.cfg.Webhooks.NewPost(&w, &author, p); err != nil {
		return err
	}
	created := job.Post{Post: p.ID, Author: p.AuthorID}
	if p.ParentID != 0 {
		created = created.ToldToConversation(p)
	}
	if err := f.cfg.Queue.EnqueueWith(ctx, tx, &w, f.poolFor(&author), job.PostCreated, created); err != nil {
		return err
	}
	for _, c := range counted(p) { // last: it may lock the post
		query, args := c.of.Adding(f.cfg.Dialect, c.post, 1)
		w.Exec(query, args...)
	}
	return w.Send(ctx, tx)
}

// insert adds the statement that inserts a post.
func insert(w *pipeline.Pipeline, p *ent.Post) {
	if !visibility.DependsOnOthers(p) && p.QuoteOf == 0 && p.ReplyAudience == "" && p.QuoteAudience == "" {
		w.Exec("INSERT INTO posts (id, author_id, text, visibility) VALUES ($1, $2, $3, $4)", p.ID, p.AuthorID, p.Text, string(p.Visibility))
		return
	}
	w.Exec("INSERT INTO posts (id, author_id, text, visibility, parent_id, parent_author_id, root_id, repost_of, quote_of, reply_audience, quote_audience)"+
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)", p.ID, p.AuthorID, p.Text, string(p.Visibility),
		orNull(p.ParentID), orNull(p.ParentAuthorID), orNull(p.RootID), orNull(p.RepostOf), orNull(p.QuoteOf),
		orNull(string(p.ReplyAudience)), orNull(string(p.QuoteAudience)))
}

// orNull returns nil for the zero value.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// count is a counter of another post that counts a post.
type count struct {
	of   rows.Counter
	post int64
}

// counted returns the counters of other posts that count p.
func counted(p *ent.Post) (list []count) {
	if p.ParentID != 0 {
		list = append(list, count{rows.Replies, p.ParentID})
	}
	if p.RepostOf != 0 {
		list = append(list, count{rows.Reposts, p.RepostOf})
	}
	if p.QuoteOf != 0 && !p.QuoteWithdrawn {
		list = append(list, count{rows.Quotes, p.QuoteOf})
	}
	return list
}

// uncount removes a post from counters of other posts.
func (f *Feed) uncount(ctx context.Context, tx *ent.Tx, counts []count) error {
	for _, c := range counts {
		exists, err := f.holdPost(ctx, tx, c.post)
		if err != nil {
			return err
		}
		if !exists {
			continue
		}
		if err := c.of.Add(ctx, tx, f.cfg.Dialect, c.post, -1); err != nil {
			return err
		}
	}
	return nil
}

// holdPost reports whether the post exists, and keeps it from being deleted until tx ends.
func (f *Feed) holdPost(ctx context.Context, tx *ent.Tx, id int64) (bool, error) {
	query := "SELECT id FROM posts WHERE id = $1"
	if f.cfg.Dialect == dialect.Postgres {
		query += " FOR KEY SHARE"
	}
	found, err := tx.QueryContext(ctx, query, id)
	if err != nil {
		return false, fmt.Errorf("hold post: %w", err)
	}
	defer found.Close()
	exists := found.Next()
	return exists, errs.Wrap(found.Err(), "hold post")
}

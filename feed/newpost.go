package feed

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/tag"
	"tideline/feed/visibility"
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
		p = &ent.Post{ID: id, AuthorID: v.ID, Text: body, Data: &data}
		if d.Visibility != nil {
			p.Visibility = *d.Visibility
		}
		return f.insertInTx(ctx, tx, p, d.IdempotencyKey)
	})
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	return p, nil
}

// insertInTx inserts the post and everything that commits with it, and sets p.Visibility if the
// post is to have the author's default. It locks the author first, then makes all checks, then
// writes. It commits tx together with the writes where the database can.
func (f *Feed) insertInTx(ctx context.Context, tx *ent.Tx, p *ent.Post, key string) error {
	var author ent.User
	lock := pipeline.Pipeline{Dialect: f.cfg.Dialect}
	visibility.CountNewPost(&lock, p, &author)
	if err := lock.Send(ctx, tx); err != nil {
		return fmt.Errorf("count post: %w", err)
	}
	if author.ID == 0 { // hidden or deleted while the call was running
		return refusal.ErrSignIn
	}

	w := pipeline.Pipeline{Dialect: f.cfg.Dialect, Commit: true}
	w.Exec("INSERT INTO posts (id, author_id, text, visibility) VALUES ($1, $2, $3, $4)", p.ID, p.AuthorID, p.Text, string(p.Visibility))
	for _, t := range tag.In(p.Text) {
		w.Exec("INSERT INTO post_tags (post_id, tag) VALUES ($1, $2)", p.ID, t)
	}
	if *p.Data != ent.NoData {
		w.Exec("INSERT INTO post_data (post_id, data) VALUES ($1, $2)", p.ID, *p.Data)
	}
	if key != "" {
		w.Exec("INSERT INTO idempotency_keys (user_id, key, post_id, created_at) VALUES ($1, $2, $3, $4)", p.AuthorID, key, p.ID, time.Now().UTC())
	}
	if err := f.cfg.Webhooks.NewPost(&w, &author, p); err != nil {
		return err
	}
	if err := f.cfg.Queue.EnqueueWith(ctx, tx, &w, f.poolFor(&author), job.PostCreated, job.Post{Post: p.ID, Author: p.AuthorID}); err != nil {
		return err
	}
	return w.Send(ctx, tx)
}

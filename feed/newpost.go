package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"entgo.io/ent/dialect"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/tag"
	"tideline/feed/visibility"
	"tideline/feed/webhook"
	"tideline/queue"
)

// insertPost writes the post, the author's counters, the idempotency key and the job, all in one
// transaction.
func (f *Feed) insertPost(ctx context.Context, v session.Viewer, body, data string, d Draft) (*ent.Post, error) {
	id, err := f.cfg.IDs.Next()
	if err != nil {
		return nil, err
	}
	p := &ent.Post{ID: id, AuthorID: v.ID, Text: body, Data: &data}
	if d.Visibility != nil {
		p.Visibility = *d.Visibility
	}
	if f.cfg.Dialect == dialect.Postgres {
		err = rows.UndoneOnce(func() error { return f.insertAtOnce(ctx, p, d.IdempotencyKey) })
	} else {
		err = f.insertInTx(ctx, p, d.IdempotencyKey)
	}
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	return p, nil
}

// countNewPost counts post $2 of author $1 unless the author is hidden. It returns the post's
// visibility: $3, or the author's default if $3 is empty.
var countNewPost = "UPDATE users SET " + visibility.CountNewPost(seenBy) +
	", last_post_id = greatest(last_post_id, CAST($2 AS bigint))" +
	" WHERE id = $1 AND NOT hidden RETURNING id, follower_count, " + seenBy + " AS visibility, issuer, external_id"

const seenBy = "coalesce(nullif(CAST($3 AS text), ''), default_visibility)"

// insertAtOnce inserts the post with one PostgreSQL statement and sets p.Visibility from its
// result. The first part of the statement locks the author's row; the other parts wait for it.
func (f *Feed) insertAtOnce(ctx context.Context, p *ent.Post, key string) error {
	insertion, err := f.cfg.Queue.Prepare(ctx, job.PostCreated, job.Post{Post: p.ID, Author: p.AuthorID})
	if err != nil {
		return err
	}
	insertJob, args := insertion.SQL("CASE WHEN follower_count < $5 THEN $6 ELSE $7 END", "author", 8)
	args = append([]any{p.AuthorID, p.ID, string(p.Visibility), p.Text, f.cfg.LargeAudience, string(queue.Small), string(queue.Large)}, args...)
	query := "WITH author AS (" + countNewPost + "), post AS (" +
		"INSERT INTO posts (id, author_id, text, visibility, like_count) SELECT $2, id, $4, visibility, 0 FROM author)"
	if key != "" {
		query += fmt.Sprintf(", remembered AS (INSERT INTO idempotency_keys (user_id, key, post_id, created_at)"+
			" SELECT id, $%d, $2, CAST($%d AS timestamptz) FROM author)", len(args)+1, len(args)+2)
		args = append(args, key, time.Now().UTC())
	}
	if *p.Data != ent.NoData {
		query += fmt.Sprintf(", data AS (INSERT INTO post_data (post_id, data) SELECT $2, $%d FROM author)", len(args)+1)
		args = append(args, *p.Data)
	}
	if tags := tag.In(p.Text); len(tags) > 0 {
		query += fmt.Sprintf(", tagged AS (INSERT INTO post_tags (post_id, tag) SELECT $2, t.tag FROM author, unnest(CAST($%d AS text[])) AS t(tag))", len(args)+1)
		args = append(args, tags)
	}
	if f.cfg.Webhooks.Wanted() {
		told, more, err := f.cfg.Webhooks.NewPost(p, "author", len(args)+1)
		if err != nil {
			return err
		}
		query += ", told AS (" + told + ")"
		args = append(args, more...)
	}
	query += ", job AS (" + insertJob + ") SELECT job.id, job.pool, author.visibility FROM job, author"
	found, err := f.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	var id int64
	var pool string
	for found.Next() {
		if err := found.Scan(&id, &pool, &p.Visibility); err != nil {
			return err
		}
	}
	// The statement has committed once its last row has been read.
	if err := errors.Join(found.Err(), found.Close()); err != nil {
		return err
	}
	if id == 0 {
		return errNoAuthor
	}
	insertion.Committed(ctx, id, queue.Pool(pool))
	return nil
}

// errNoAuthor is returned if the user was hidden or deleted while the call was running.
var errNoAuthor = refusal.ErrSignIn

// insertInTx inserts the post in one transaction and sets p.Visibility.
func (f *Feed) insertInTx(ctx context.Context, p *ent.Post, key string) error {
	return rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		author, err := tx.User.Query().Where(user.ID(p.AuthorID)).Modify(rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) || err == nil && author.Hidden {
			return errNoAuthor
		}
		if err != nil {
			return fmt.Errorf("lock author: %w", err)
		}
		p.Visibility = cmp.Or(p.Visibility, author.DefaultVisibility)
		if err := tx.Post.Create().SetID(p.ID).SetAuthorID(p.AuthorID).SetText(p.Text).SetVisibility(p.Visibility).Exec(ctx); err != nil {
			return err
		}
		if _, err := tag.Keep(ctx, tx, p); err != nil {
			return err
		}
		if *p.Data != ent.NoData {
			if err := rows.KeepPostData(ctx, tx, p.ID, *p.Data); err != nil {
				return err
			}
		}
		if key != "" {
			err := tx.IdempotencyKey.Create().SetUserID(p.AuthorID).SetKey(key).SetPostID(p.ID).Exec(ctx)
			if err != nil {
				return fmt.Errorf("keep idempotency key: %w", err)
			}
		}
		count := visibility.AddToPostCount(tx.User.UpdateOne(author), p.Visibility, 1).SetLastPostID(max(p.ID, author.LastPostID))
		if err := count.Exec(ctx); err != nil {
			return fmt.Errorf("count post: %w", err)
		}
		if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostCreated, author, p); err != nil {
			return err
		}
		return f.enqueuePost(ctx, tx, job.PostCreated, author, job.Post{Post: p.ID, Author: p.AuthorID})
	})
}

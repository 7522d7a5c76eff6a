package feed

import (
	"context"
	"fmt"
	"time"

	"tideline/ent"
	"tideline/ent/postversion"
	"tideline/feed/ids"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/tag"
	"tideline/feed/webhook"
	"tideline/internal/errs"
)

// MaxVersions is how many earlier versions of a post are kept. The oldest are deleted first.
const MaxVersions = 50

// Edit is a change of a post's content. Fields that are nil do not change.
type Edit struct {
	Text *string
	Data *string // replaces the app's own fields, a JSON object
	// IfUnchangedSince makes the edit fail if the post was edited after this time.
	IfUnchangedSince *time.Time
}

// UpdatePost changes the content of the viewer's post and keeps the earlier version for its
// author. Once it has returned, reads return the new text, and muted words are compared with the
// new text. An edit that changes nothing has no effect, so a call can be repeated. With
// IfUnchangedSince, a call that arrives late does not undo a later edit. Errors: Unauthenticated,
// NotFound, BadInput; Forbidden, also for a post that a moderator hid; Conflict if the post was
// edited since.
//
// Cost: one query and one short transaction, for any number of followers.
func (f *Feed) UpdatePost(ctx context.Context, v session.Viewer, id int64, e Edit) (*ent.Post, error) {
	if err := f.mayChange(ctx, v, id); err != nil {
		return nil, err
	}
	if e.Text != nil {
		clean, err := text.OfPost(f.cfg.MaxText).Clean(*e.Text)
		if err != nil {
			return nil, err
		}
		e.Text = &clean
	}
	if e.Data != nil {
		clean, err := text.Data(*e.Data)
		if err != nil {
			return nil, err
		}
		e.Data = &clean
	}
	var p *ent.Post
	err := rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) (err error) {
		p, err = f.edit(ctx, tx, v, id, e)
		return err
	})
	f.cfg.Visibility.VisibilityReduced() // a viewer may mute a word of the new text
	return p, err
}

// edit runs in the transaction of UpdatePost.
func (f *Feed) edit(ctx context.Context, tx *ent.Tx, v session.Viewer, id int64, e Edit) (*ent.Post, error) {
	author, p, err := f.ownPost(ctx, tx, v, id)
	if err != nil {
		return nil, err
	}
	if p.HiddenByModerators() {
		return nil, refusal.New(refusal.HiddenPost, "A moderator hid the post: it cannot be edited.")
	}
	if p.RepostOf != 0 {
		return nil, refusal.New(refusal.Contradiction, "A repost has no text of its own.").In("postId")
	}
	data, err := rows.PostData(ctx, tx.PostData, []int64{id})
	if err != nil {
		return nil, err
	}
	p.Data = data[0]
	said, had, since := p.Text, *p.Data, max(p.EditedAt, ids.TimeOf(id).UnixMilli())
	if e.Text != nil {
		p.Text = *e.Text
	}
	if e.Data != nil {
		p.Data = e.Data
	}
	if p.Text == said && *p.Data == had {
		return p, nil
	}
	if e.IfUnchangedSince != nil && e.IfUnchangedSince.UnixMilli() < since {
		return nil, refusal.New(refusal.EditedSince, "The post was edited since: read what it says now.").In("ifUnchangedSince")
	}
	if p.ChangedAt, err = f.changedNow(p); err != nil {
		return nil, err
	}
	p.EditedAt = max(p.ChangedAt, since+1)
	p.ChangedAt = p.EditedAt
	if err := tx.PostVersion.Create().SetPostID(id).SetText(said).SetData(had).SetWrittenAt(since).Exec(ctx); err != nil {
		return nil, fmt.Errorf("keep version: %w", err)
	}
	old, err := tx.PostVersion.Query().Where(postversion.PostID(id)).Order(ent.Desc(postversion.FieldID)).Offset(MaxVersions).Limit(MaxVersions).IDs(ctx)
	if err == nil && len(old) > 0 {
		_, err = tx.PostVersion.Delete().Where(postversion.IDIn(old...)).Exec(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("drop old versions: %w", err)
	}
	if err := tx.Post.UpdateOneID(id).SetText(p.Text).SetEditedAt(p.EditedAt).SetChangedAt(p.EditedAt).Exec(ctx); err != nil {
		return nil, fmt.Errorf("edit post: %w", err)
	}
	if _, err := tag.Keep(ctx, tx, p); err != nil {
		return nil, err
	}
	if err := keepMentions(ctx, tx, p, said); err != nil {
		return nil, err
	}
	if *p.Data != had {
		if err := rows.KeepPostData(ctx, tx, id, *p.Data); err != nil {
			return nil, err
		}
	}
	if err := f.cfg.Webhooks.Post(ctx, tx, webhook.PostUpdated, author, p); err != nil {
		return nil, err
	}
	if err := f.baseChanged(ctx, tx, p, job.Post{Edited: true}); err != nil {
		return nil, err
	}
	return p, f.enqueuePost(ctx, tx, author, job.Post{Post: id, Author: author.ID, From: p.Visibility, To: p.Visibility, Edited: true}.ToldToConversation(p))
}

// changedNow returns a Post.ChangedAt for a change of the post, after every earlier one. It is from the
// clock of post ids, because streams compare the two.
func (f *Feed) changedNow(p *ent.Post) (int64, error) {
	now, err := f.cfg.IDs.Next()
	return max(ids.TimeOf(now).UnixMilli(), p.ChangedAt+1), err
}

// firstVersion returns the original content of an edited post, or nil if it is no longer kept.
func firstVersion(ctx context.Context, db *ent.Client, post int64) (*ent.PostVersion, error) {
	v, err := db.PostVersion.Query().Where(postversion.PostID(post)).Order(ent.Asc(postversion.FieldID)).First(ctx)
	if ent.IsNotFound(err) || err == nil && v.WrittenAt != ids.TimeOf(post).UnixMilli() {
		return nil, nil
	}
	return v, errs.Wrap(err, "read first version")
}

// Versions returns a page of earlier versions of the post, newest first. It returns nil unless
// the viewer is the author. Error: BadInput.
//
// Cost: an index range the size of the page.
func (f *Feed) Versions(ctx context.Context, v session.Viewer, of *ent.Post, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
	if v.ID == 0 || v.ID != of.AuthorID {
		return nil, nil
	}
	return f.VersionsOf(ctx, of.ID, p)
}

// VersionsOf returns the same page as Versions, for any viewer. It does not check permissions:
// package feed/moderation does.
func (f *Feed) VersionsOf(ctx context.Context, post int64, p paging.Page) (*paging.Connection[ent.PostVersion], error) {
	w, err := paging.Open(p, paging.Versions, post, f.cfg.MaxPage)
	if err != nil {
		return nil, err
	}
	r := w.Range()
	q := f.cfg.DB.PostVersion.Query().Where(postversion.PostID(post)).Order(ent.Desc(postversion.FieldID)).Limit(r.Limit)
	if w.After != nil {
		q.Where(postversion.IDLT(r.Upper()))
	}
	list, err := q.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return paging.ConnectBy(w, list, paging.Versions, post, func(version *ent.PostVersion) int64 { return version.ID }), nil
}

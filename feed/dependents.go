package feed

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/post"
	"tideline/ent/predicate"
	"tideline/ent/schema"
	"tideline/feed/internal/rows"
	"tideline/feed/job"
	"tideline/queue"
)

// TellDependents enqueues a job for each of the replies, reposts and quotes of a post that have a
// higher id than after, at most most of them. The jobs tell clients to look at them again. After an
// edit, replies are left out: they do not show the text. TellDependents deletes reposts whose original
// is gone. It returns the last id of the page, or 0 if the page is the last one. A call may be repeated.
//
// Cost: three index ranges, and two statements a post, in one transaction.
func (f *Feed) TellDependents(ctx context.Context, base, after int64, edited bool, most int) (last int64, err error) {
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		last = 0
		gone, list, err := dependents(ctx, tx, base, after, edited, most)
		if err != nil {
			return err
		}
		// A process that only works has no ids of its own. Its clock may be two minutes behind theirs:
		// as far back, streams look for changes.
		now := f.cfg.Now().UnixMilli()
		for _, p := range list {
			change := job.Post{Post: p.ID, Author: p.AuthorID, From: p.Visibility, To: p.Visibility, Edited: true, Base: true}
			if p.QuoteOf != 0 { // its card may look different. The job of a root tells of its other replies
				change = change.ToldToConversation(p)
			}
			if gone && p.RepostOf == base {
				if err := tx.Post.DeleteOneID(p.ID).Exec(ctx); err != nil {
					return fmt.Errorf("delete repost: %w", err)
				}
				change.To, change.Edited, change.Base = "", false, false
			} else if err := tx.Post.UpdateOneID(p.ID).SetChangedAt(max(now, p.ChangedAt+1)).Exec(ctx); err != nil {
				return fmt.Errorf("mark as changed: %w", err)
			}
			if err := f.cfg.Queue.Enqueue(ctx, tx, queue.Large, job.PostChanged, change); err != nil {
				return err
			}
		}
		if len(list) == most {
			last = list[len(list)-1].ID
		}
		return nil
	})
	return last, err
}

// dependentsOf returns a predicate for each kind of post that a change of the post with the id concerns.
func dependentsOf(id int64, edited bool) []predicate.Post {
	kinds := []predicate.Post{post.RepostOf(id), post.QuoteOf(id)}
	if !edited {
		kinds = append(kinds, post.RootID(id))
	}
	return kinds
}

// dependents returns the next page of the replies, reposts and quotes of a post, locked. gone reports
// whether the post is deleted.
func dependents(ctx context.Context, tx *ent.Tx, base, after int64, edited bool, most int) (gone bool, list []*ent.Post, err error) {
	exists, err := tx.Post.Query().Where(post.ID(base), post.VisibilityNEQ(schema.Deleted)).Exist(ctx)
	if err != nil {
		return false, nil, fmt.Errorf("find post: %w", err)
	}
	// A query each: an OR of the columns in one would read no index in order.
	for _, of := range dependentsOf(base, edited) {
		some, err := tx.Post.Query().Where(of, post.IDGT(after), post.VisibilityNEQ(schema.Deleted), rows.ForUpdate).Order(ent.Asc(post.FieldID)).Limit(most).All(ctx)
		if err != nil {
			return false, nil, fmt.Errorf("find replies and reposts: %w", err)
		}
		list = append(list, some...)
	}
	slices.SortFunc(list, func(a, b *ent.Post) int { return cmp.Compare(a.ID, b.ID) })
	list = slices.CompactFunc(list, func(a, b *ent.Post) bool { return a.ID == b.ID })
	return !exists, list[:min(len(list), most)], nil
}

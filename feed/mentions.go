package feed

import (
	"context"
	"fmt"
	"slices"

	"tideline/ent"
	"tideline/ent/block"
	"tideline/ent/postmention"
	"tideline/ent/predicate"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/mention"
	"tideline/internal/errs"
)

// mentioned is a mention with its user.
type mentioned struct {
	mention.Mention
	user int64
}

// mentionsIn returns the mentions of existing users in a post's text. It leaves out users who block the
// author and users that the author blocks. known maps handles to users for which no look-up is needed.
//
// Cost: none for a text without mentions; otherwise two queries by index.
func mentionsIn(ctx context.Context, tx *ent.Tx, p *ent.Post, known map[string]int64) ([]mentioned, error) {
	found := mention.In(p.Text)
	users := map[string]int64{}
	var handles []string
	for _, m := range found {
		if id, ok := known[m.Handle]; ok {
			users[m.Handle] = id
		} else if !slices.Contains(handles, m.Handle) {
			handles = append(handles, m.Handle)
		}
	}
	if len(handles) > 0 {
		list, err := tx.User.Query().Where(user.HandleIn(handles...), user.Hidden(false)).Select(user.FieldID, user.FieldHandle).All(ctx)
		if err != nil {
			return nil, fmt.Errorf("find mentioned users: %w", err)
		}
		for _, u := range list {
			users[u.Handle] = u.ID
		}
	}
	if len(users) == 0 {
		return nil, nil
	}
	blocked, err := blocks(ctx, tx, p.AuthorID, users)
	if err != nil {
		return nil, err
	}
	var list []mentioned
	for _, m := range found {
		if id := users[m.Handle]; id != 0 && !blocked[id] {
			list = append(list, mentioned{m, id})
		}
	}
	return list, nil
}

// blocks returns the users who block the author, and the users that the author blocks.
func blocks(ctx context.Context, tx *ent.Tx, author int64, users map[string]int64) (map[int64]bool, error) {
	var either []predicate.Block
	for _, id := range users {
		if id == author {
			continue
		}
		either = append(either, block.And(block.BlockerID(author), block.BlockedID(id)), block.And(block.BlockerID(id), block.BlockedID(author)))
	}
	if len(either) == 0 {
		return nil, nil
	}
	list, err := tx.Block.Query().Where(block.Or(either...)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find blocks of mentioned users: %w", err)
	}
	found := map[int64]bool{}
	for _, b := range list {
		found[b.BlockerID], found[b.BlockedID] = true, true
	}
	delete(found, author)
	return found, nil
}

// keepMentions replaces the stored mentions of an edited post by the mentions in the new text. If the
// earlier text mentioned a handle, the new mention keeps the user, even if the user has another handle
// by now.
func keepMentions(ctx context.Context, tx *ent.Tx, p *ent.Post, before string) error {
	stored, err := tx.PostMention.Query().Where(postmention.PostID(p.ID)).All(ctx)
	if err != nil {
		return fmt.Errorf("read mentions: %w", err)
	}
	known := map[string]int64{}
	for _, m := range mention.In(before) {
		for _, row := range stored {
			if row.Start == m.Start {
				known[m.Handle] = row.UserID
			}
		}
	}
	list, err := mentionsIn(ctx, tx, p, known)
	if err != nil || len(stored)+len(list) == 0 {
		return err
	}
	if _, err := tx.PostMention.Delete().Where(postmention.PostID(p.ID)).Exec(ctx); err != nil {
		return fmt.Errorf("delete mentions: %w", err)
	}
	create := rows.Map(list, func(m mentioned) *ent.PostMentionCreate {
		return tx.PostMention.Create().SetPostID(p.ID).SetUserID(m.user).SetStart(m.Start).SetEnd(m.End)
	})
	return errs.Wrap(tx.PostMention.CreateBulk(create...).Exec(ctx), "create mentions")
}

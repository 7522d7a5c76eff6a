package feed

import (
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
)

// HidePost hides a post from everybody but its author, or shows it again to those who saw
// it. From its return on no read shows a hidden post to anybody else. A post that is so
// already stays so. When there is something to change, allow is called first, in the
// transaction. It asks for nobody's leave: package feed/moderation does. Errors: NotFound;
// that of allow.
//
// Cost: as SetVisibility.
func (f *Feed) HidePost(ctx context.Context, id int64, hide bool, allow func(*ent.Tx) error) (changed bool, err error) {
	found, err := f.posts.Stored(ctx, id)
	if err != nil {
		return false, err
	}
	if found == nil {
		return false, refusal.ErrNoSuchPost
	}
	err = rows.InTx(ctx, f.db, func(tx *ent.Tx) error {
		changed = false
		author, err := tx.User.Query().Where(user.ID(found.AuthorID)).Modify(rows.ForUpdate).Only(ctx)
		if ent.IsNotFound(err) {
			return refusal.ErrNoSuchPost
		}
		if err != nil {
			return fmt.Errorf("lock author: %w", err)
		}
		p, err := lockPost(ctx, tx, id)
		if err != nil {
			return err
		}
		if p.HiddenByModerators() == hide {
			return nil
		}
		if err := allow(tx); err != nil {
			return err
		}
		changed = true
		to := p.Visibility.Shown()
		if hide {
			to = p.Visibility.Hidden()
		}
		return f.changeVisibility(ctx, tx, author, p, to)
	})
	f.posts.Narrowed()
	return changed && err == nil, err
}

package feed

import (
	"context"

	"tideline/ent"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/internal/errs"
)

// HidePost hides a post from everybody except its author, or shows it again. Once it has
// returned, no read shows a hidden post to anybody else. If the post already is in the wanted
// state, HidePost changes nothing. Otherwise it first calls allow in the transaction. HidePost
// does not check permissions: package feed/moderation does. Errors: NotFound, and any error of
// allow.
//
// Cost: as SetVisibility.
func (f *Feed) HidePost(ctx context.Context, id int64, hide bool, allow func(tx *ent.Tx, author int64) error) (changed bool, err error) {
	found, err := f.cfg.Visibility.Unchecked.Post(ctx, id)
	if err != nil {
		return false, err
	}
	if found == nil {
		return false, refusal.ErrNoSuchPost
	}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		changed = false
		author, err := f.lockAuthor(ctx, tx, found.AuthorID)
		if err != nil {
			return err
		}
		p, err := lockPost(ctx, tx, id)
		if err != nil {
			return err
		}
		if p.HiddenByModerators() == hide {
			return nil
		}
		if err := allow(tx, author.ID); err != nil {
			return err
		}
		changed = true
		to := p.Visibility.Shown()
		if hide {
			to = p.Visibility.Hidden()
		}
		return f.changeVisibility(ctx, tx, author, p, to)
	})
	// The commit may have succeeded even if it returned an error.
	f.cfg.Visibility.VisibilityReduced()
	return changed && err == nil, err
}

// lockAuthor locks the row of a post's author. Error: NotFound.
func (f *Feed) lockAuthor(ctx context.Context, tx *ent.Tx, id int64) (*ent.User, error) {
	author, err := tx.User.Query().Where(user.ID(id)).Modify(rows.ForUpdate).Only(ctx)
	if ent.IsNotFound(err) {
		return nil, refusal.ErrNoSuchPost
	}
	return author, errs.Wrap(err, "lock author")
}

package feed

import (
	"cmp"
	"context"
	"fmt"

	"tideline/ent"
	"tideline/ent/mutedconversation"
	"tideline/feed/internal/rows"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/internal/errs"
)

// MaxMutedConversations is the number of conversations that a user may mute.
const MaxMutedConversations = 2000

// MuteConversation removes the replies of a conversation, and reposts of them, from the viewer's
// timeline, except the viewer's own. The root and its reposts stay. The post is any post of the
// conversation, or a repost of one. Nobody else is told. It returns the post, or nil if the viewer may
// not see it. Muting the same conversation again changes nothing. Errors: Unauthenticated; BadInput for
// too many conversations.
//
// The viewer may mute the conversation of a root that they can no longer see, for example because its
// author has narrowed it for a while. The call then writes the same row whether such a post exists or
// not, and does not look for the post's conversation: a post that the viewer cannot see may be a reply
// in a conversation that they can see, and must not tell of it.
//
// Cost: a short transaction, a job and six round trips.
func (f *Feed) MuteConversation(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	return f.changeConversation(ctx, v, id, func(tx *ent.Tx, root int64, seen bool) (bool, error) {
		if muted, err := tx.MutedConversation.Query().Where(mutedconversation.UserID(v.ID), mutedconversation.RootID(root)).Exist(ctx); muted || err != nil {
			return false, err
		}
		if err := makeRoom(ctx, tx, v.ID); err != nil {
			return false, err
		}
		return true, tx.MutedConversation.Create().SetUserID(v.ID).SetRootID(root).SetUnseen(!seen).Exec(ctx)
	})
}

// makeRoom returns BadInput if the user, whose row is locked, mutes as many conversations as a user may.
// Before that it forgets conversations whose root was deleted. It keeps those that were muted unseen,
// because their number must not tell which of the posts exist.
func makeRoom(ctx context.Context, tx *ent.Tx, user int64) error {
	n, err := tx.MutedConversation.Query().Where(mutedconversation.UserID(user)).Count(ctx)
	if err != nil || n < MaxMutedConversations {
		return errs.Wrap(err, "count muted conversations")
	}
	gone, err := tx.ExecContext(ctx, "DELETE FROM muted_conversations WHERE user_id = $1 AND NOT unseen AND NOT EXISTS"+
		" (SELECT 1 FROM posts p WHERE p.id = muted_conversations.root_id)", user)
	if err != nil {
		return fmt.Errorf("forget conversations that are gone: %w", err)
	}
	if forgotten, err := gone.RowsAffected(); err != nil || forgotten > 0 {
		return errs.Wrap(err, "forget conversations that are gone")
	}
	return refusal.New(refusal.TooMany, "At most %d conversations can be muted.", MaxMutedConversations).Beyond("mutedConversations", MaxMutedConversations, n+1)
}

// UnmuteConversation shows the posts again that MuteConversation removed. Error: Unauthenticated.
//
// Cost: as MuteConversation.
func (f *Feed) UnmuteConversation(ctx context.Context, v session.Viewer, id int64) (*ent.Post, error) {
	return f.changeConversation(ctx, v, id, func(tx *ent.Tx, root int64, _ bool) (bool, error) {
		n, err := tx.MutedConversation.Delete().Where(mutedconversation.UserID(v.ID), mutedconversation.RootID(root)).Exec(ctx)
		return n > 0, err
	})
}

// changeConversation calls change with the root of a post's conversation. If the viewer does not see the
// post, the root is the post itself. It returns the post, or nil if the viewer may not see it afterwards.
func (f *Feed) changeConversation(ctx context.Context, v session.Viewer, id int64, change func(tx *ent.Tx, root int64, seen bool) (bool, error)) (*ent.Post, error) {
	_, err := f.changeMuted(ctx, v, func(tx *ent.Tx) (bool, error) {
		p, err := f.cfg.Visibility.In(tx).Post(ctx, v.ID, id)
		if err != nil {
			return false, err
		}
		root, seen := id, p != nil
		if seen {
			root = rootOf(p)
		}
		return change(tx, root, seen)
	})
	if err != nil {
		return nil, err
	}
	return f.postIfSeen(ctx, v, id)
}

// rootOf returns the root of the conversation of a post, or of a repost's original.
func rootOf(p *ent.Post) int64 { return cmp.Or(p.RootID, p.RepostOf, p.ID) }

// MutesConversation reports whether the viewer mutes the conversation of each of the posts, in their
// order.
//
// Cost: one query with a look-up a post.
func (f *Feed) MutesConversation(ctx context.Context, v session.Viewer, posts []*ent.Post) ([]bool, error) {
	list := make([]bool, len(posts))
	if v.ID == 0 {
		return list, nil
	}
	roots := rows.Map(posts, rootOf)
	found, err := f.cfg.DB.MutedConversation.Query().Where(mutedconversation.UserID(v.ID), rows.Among(mutedconversation.FieldRootID, roots)).
		Select(mutedconversation.FieldRootID).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find muted conversations: %w", err)
	}
	muted := map[int64]bool{}
	for _, row := range found {
		muted[row.RootID] = true
	}
	for i, root := range roots {
		list[i] = muted[root]
	}
	return list, nil
}

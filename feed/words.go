package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"tideline/ent"
	"tideline/ent/mutedword"
	"tideline/ent/user"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/job"
	"tideline/feed/refusal"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/internal/errs"
	"tideline/queue"
)

const (
	// MaxMutedWords is the number of words that a user may mute.
	MaxMutedWords = 100
	// MaxMutedWord is the maximum length of a muted word or phrase, in characters (Unicode code
	// points).
	MaxMutedWord = 64
)

var wordField = text.Field{What: "The word", Name: "word", Limit: "mutedWordLength", Least: 1, Most: MaxMutedWord}

// MuteWord removes posts of others that contain the word or phrase from the viewer's timeline.
// Nobody else is told. It returns the word as visibility.NormalWord normalises it, and the
// viewer's row. Muting the same word again changes nothing. Errors: Unauthenticated; BadInput for
// a text without a word, for a text that is too long, and for too many words.
//
// Cost: a short transaction, a job and four round trips.
func (f *Feed) MuteWord(ctx context.Context, v session.Viewer, word string) (normalised string, u *ent.User, err error) {
	return f.changeWords(ctx, v, word, func(tx *ent.Tx, word, head string) (bool, error) {
		muted, err := tx.MutedWord.Query().Where(mutedword.UserID(v.ID)).Select(mutedword.FieldWord).Strings(ctx)
		if err != nil {
			return false, fmt.Errorf("read muted words: %w", err)
		}
		if slices.Contains(muted, word) {
			return false, nil
		}
		if len(muted) >= MaxMutedWords {
			return false, refusal.New(refusal.TooMany, "At most %d words can be muted.", MaxMutedWords).Beyond("mutedWords", MaxMutedWords, len(muted)+1)
		}
		return true, tx.MutedWord.Create().SetUserID(v.ID).SetWord(word).SetHead(head).Exec(ctx)
	})
}

// UnmuteWord shows the posts again that MuteWord removed. Errors: Unauthenticated, BadInput.
//
// Cost: as MuteWord.
func (f *Feed) UnmuteWord(ctx context.Context, v session.Viewer, word string) (normalised string, u *ent.User, err error) {
	return f.changeWords(ctx, v, word, func(tx *ent.Tx, word, _ string) (bool, error) {
		n, err := tx.MutedWord.Delete().Where(mutedword.UserID(v.ID), mutedword.Word(word)).Exec(ctx)
		return n > 0, err
	})
}

// changeWords changes the viewer's words.
func (f *Feed) changeWords(ctx context.Context, v session.Viewer, word string, change func(tx *ent.Tx, word, head string) (bool, error)) (normalised string, u *ent.User, err error) {
	if word, err = wordField.FoldPhrase(word); err != nil {
		return "", nil, err
	}
	word, head := visibility.NormalWord(word)
	u, err = f.changeMuted(ctx, v, func(tx *ent.Tx) (bool, error) { return change(tx, word, head) })
	return word, u, err
}

// changeMuted changes the words or conversations that the viewer mutes, with the viewer's row locked. If
// they changed, it tells the viewer's clients to read the timeline again.
func (f *Feed) changeMuted(ctx context.Context, v session.Viewer, change func(tx *ent.Tx) (bool, error)) (u *ent.User, err error) {
	if v.ID == 0 {
		return nil, refusal.ErrSignIn
	}
	changed, j := false, job.Words{User: v.ID, Change: rand.Int64()}
	err = rows.InTx(ctx, f.cfg.DB, func(tx *ent.Tx) error {
		u, err = tx.User.Query().Where(user.ID(v.ID), rows.ForUpdate, rows.WithFollows).Only(ctx)
		if ent.IsNotFound(err) || err == nil && u.Hidden {
			return refusal.ErrSignIn
		}
		if err != nil {
			return fmt.Errorf("lock user: %w", err)
		}
		if changed, err = change(tx); err != nil || !changed {
			return errs.Wrap(err, "change what is muted")
		}
		return f.cfg.Queue.Enqueue(ctx, tx, queue.Relations, job.WordsChanged, j)
	})
	if changed { // also if it is unknown whether the commit succeeded
		f.cfg.Visibility.VisibilityReduced()
	}
	if err != nil || !changed {
		return u, err
	}
	if err := f.cfg.Home.Sync.WordsChanged(ctx, v.ID, j.Change); err != nil {
		f.cfg.Logger.WarnContext(ctx, "clients not told of a change of what is muted; a job will", "error", err)
	}
	return u, nil
}

// MutedWords returns the viewer's muted words in the order in which they were muted. It returns
// nil unless the viewer is the owner.
//
// Cost: one query by index.
func (f *Feed) MutedWords(ctx context.Context, v session.Viewer, owner int64) ([]string, error) {
	if v.ID == 0 || v.ID != owner {
		return nil, nil
	}
	words, err := f.cfg.DB.MutedWord.Query().Where(mutedword.UserID(owner)).Order(mutedword.ByID()).Select(mutedword.FieldWord).Strings(ctx)
	if words == nil {
		words = []string{}
	}
	return words, errs.Wrap(err, "read muted words")
}

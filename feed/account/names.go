package account

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect/sql"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/ent/user"
	"tideline/ent/userword"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/internal/errs"
)

// Bounds of the words by which a user is found.
const (
	maxWord  = maxSearch // indexed characters of a word
	maxWords = 100       // words of a user
)

// IndexedAs returns the value of User.indexed_as for a user who is indexed by this handle and
// name.
func IndexedAs(handle, name string) string { return handle + " " + name }

// wordsOf returns the words that a search for the user compares. It leaves out a word if another
// word begins with it.
func wordsOf(u *ent.User) []string {
	var words []string
	// A query with the accents of a name and one without them both find it.
	names := text.FoldPhrase(IndexedAs(u.Handle, u.Name))
	if plain := text.Unaccented(names); plain != names {
		names += " " + plain
	}
	for word := range text.Beginnings(names) {
		words = append(words, text.Cut(word, maxWord))
		if len(words) == maxWords {
			break
		}
	}
	slices.Sort(words)
	var longest []string
	for i, word := range words {
		if i+1 == len(words) || !strings.HasPrefix(words[i+1], word) {
			longest = append(longest, word)
		}
	}
	return longest
}

// KeepNames indexes the users by the words of their handles and names, and removes other words.
// The caller has created or changed the users in tx, or has locked them.
//
// Cost: nothing for users that are already indexed; for others a look-up by index and up to three
// statements for each thousand words.
func KeepNames(ctx context.Context, tx *ent.Tx, users ...*ent.User) error {
	users = slices.DeleteFunc(slices.Clone(users), func(u *ent.User) bool {
		return u.IndexedAs != nil && *u.IndexedAs == IndexedAs(u.Handle, u.Name)
	})
	if len(users) == 0 {
		return nil
	}
	ids := rows.Map(users, func(u *ent.User) int64 { return u.ID })
	list, err := tx.UserWord.Query().Where(rows.Among(userword.FieldUserID, ids)).All(ctx)
	if err != nil {
		return fmt.Errorf("read words of users: %w", err)
	}
	there := map[int64][]*ent.UserWord{} // by user
	for _, row := range list {
		there[row.UserID] = append(there[row.UserID], row)
	}
	var gone []int64
	var create []*ent.UserWordCreate
	for _, u := range users {
		words := wordsOf(u)
		for _, row := range there[u.ID] {
			if !slices.Contains(words, string(row.Word)) {
				gone = append(gone, row.ID)
			}
		}
		for _, word := range words {
			if !slices.ContainsFunc(there[u.ID], func(row *ent.UserWord) bool { return string(row.Word) == word }) {
				create = append(create, tx.UserWord.Create().SetUserID(u.ID).SetWord([]byte(word)))
			}
		}
	}
	if len(gone) > 0 {
		if _, err := tx.UserWord.Delete().Where(rows.Among(userword.FieldID, gone)).Exec(ctx); err != nil {
			return fmt.Errorf("delete words of users: %w", err)
		}
	}
	for chunk := range slices.Chunk(create, 1000) {
		if err := tx.UserWord.CreateBulk(chunk...).Exec(ctx); err != nil {
			return fmt.Errorf("create words of users: %w", err)
		}
	}
	err = tx.User.Update().Where(rows.Among(user.FieldID, ids)).Modify(func(u *sql.UpdateBuilder) {
		u.Set(user.FieldIndexedAs, sql.Expr("handle || ' ' || name"))
	}).Exec(ctx)
	return errs.Wrap(err, "note names of users")
}

// IndexNames indexes up to n users that were created or renamed without KeepNames. It returns how
// many there were.
//
// Cost: a look-up in an index that is usually empty; otherwise a transaction that locks the
// users.
func IndexNames(ctx context.Context, db *ent.Client, n int) (int, error) {
	ids, err := db.User.Query().Where(func(s *sql.Selector) { s.Where(sql.ExprP(schema.Unindexed)) }).Order(user.ByID()).Limit(n).IDs(ctx)
	if err != nil || len(ids) == 0 {
		return 0, errs.Wrap(err, "find users without words")
	}
	return len(ids), rows.InTx(ctx, db, func(tx *ent.Tx) error {
		users, err := tx.User.Query().Where(rows.Among(user.FieldID, ids), rows.ForUpdate).Order(user.ByID()).All(ctx)
		if err != nil {
			return fmt.Errorf("lock users: %w", err)
		}
		return KeepNames(ctx, tx, users...)
	})
}

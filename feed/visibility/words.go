package visibility

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tideline/ent/mutedword"
	"tideline/feed/internal/rows"
	"tideline/feed/internal/text"
	"tideline/feed/tag"
	"tideline/internal/errs"
)

// A viewer may mute words. A post by somebody else that has one is not shown in the viewer's home
// timeline or in the list of a tag. The words are read in the same statement as the post, so a
// verdict knows all words that were muted before it. A fan-out ignores them: it pushes the post,
// and reads leave it out.
//
// Texts are compared folded (text.FoldPhrase). A word matches where it stands by itself: "cat" is
// in "Cat!" but not in "category". In a script that does not separate words by spaces, such as
// Chinese or Japanese, it matches anywhere. Mastodon's filters do the same. A tag ("#cat") matches
// only the tag, and "@cat" matches no part of an address.

// columnWords names the additional column with the viewer's muted words, in a query of posts for a
// viewer.
const columnWords = "muted_words"

// betweenWords separates the words in the column. No word contains it.
const betweenWords = "\n"

// wordsOf returns the SQL expression of the words that a viewer mutes. The database computes it
// once per statement.
func wordsOf(viewer string) string {
	return "(SELECT coalesce(string_agg(w.word, '" + betweenWords + "'), '') FROM " + mutedword.Table + " w WHERE w.user_id = " + viewer + ")"
}

// NormalWord returns a word or phrase in the form in which it is compared, and its head: the first
// of its parts. The head is empty if the word has no parts.
func NormalWord(word string) (normalised, head string) {
	normalised = text.FoldPhrase(word)
	for part := range parts(normalised) {
		return normalised, part
	}
	return normalised, ""
}

// parts yields the parts of a folded text: each run of characters for which text.Apart is true, and
// each other character except spaces. A word that is in the text begins with one of them.
func parts(folded string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for folded != "" {
			end := strings.IndexFunc(folded, func(r rune) bool { return !text.Apart(r) })
			if end < 0 {
				end = len(folded)
			}
			space := false
			if end == 0 {
				r, size := utf8.DecodeRuneInString(folded)
				end, space = size, unicode.IsSpace(r)
			}
			if !space && !yield(folded[:end]) {
				return
			}
			folded = folded[end:]
		}
	}
}

// postText is the text of a post, as it was written and folded.
type postText struct{ written, folded string }

func textOf(written string) postText { return postText{written, text.FoldPhrase(written)} }

// has reports whether the text has a word, which must be in the form of NormalWord.
func (s postText) has(word string) bool {
	if strings.HasPrefix(word, "#") {
		if name, err := tag.Parse(word); err == nil {
			return tag.Has(s.written, name)
		}
	}
	first, _ := utf8.DecodeRuneInString(word)
	last, _ := utf8.DecodeLastRuneInString(word)
	for from := 0; ; {
		at := strings.Index(s.folded[from:], word)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(s.folded[:at])
		after, _ := utf8.DecodeRuneInString(s.folded[at+len(word):])
		begins, ends := !text.Apart(first) || !text.Apart(before), !text.Apart(last) || !text.Apart(after)
		if first == '@' { // not as part of an address
			begins = !text.Apart(before) && !strings.ContainsRune("@/._", before)
		}
		if begins && ends {
			return true
		}
		_, size := utf8.DecodeRuneInString(s.folded[at:])
		from = at + size
	}
}

// hasAny reports whether a post's text has one of the words of columnWords.
func hasAny(post, words string) bool {
	if words == "" {
		return false
	}
	p := textOf(post)
	for word := range strings.SplitSeq(words, betweenWords) {
		if p.has(word) {
			return true
		}
	}
	return false
}

// muters returns the users who mute a word of the text.
//
// Cost: one query with an index range for each part of the text.
func (r *Reader) muters(ctx context.Context, post string, users []int64) (map[int64]bool, error) {
	p := textOf(post)
	heads := slices.Collect(parts(p.folded))
	slices.Sort(heads)
	heads = slices.Compact(heads)
	if len(heads) == 0 || len(users) == 0 {
		return nil, nil
	}
	found, err := r.db.QueryContext(ctx, "SELECT user_id, word FROM muted_words WHERE head "+rows.In(r.dialect, "$1", "text")+" AND user_id "+rows.In(r.dialect, "$2", "bigint"),
		rows.List(r.dialect, heads), rows.List(r.dialect, users))
	if err != nil {
		return nil, fmt.Errorf("read muted words: %w", err)
	}
	defer found.Close()
	muting := map[int64]bool{}
	for found.Next() {
		var user int64
		var word string
		if err := found.Scan(&user, &word); err != nil {
			return nil, fmt.Errorf("read muted words: %w", err)
		}
		if !muting[user] && p.has(word) {
			muting[user] = true
		}
	}
	return muting, errs.Wrap(found.Err(), "read muted words")
}

// MutedWords returns the words of each of the users who mute any, separated by line breaks.
//
// Cost: one query with an index range a user.
func (r *Reader) MutedWords(ctx context.Context, users []int64) (map[int64]string, error) {
	list, err := r.db.MutedWord.Query().Where(rows.Among(mutedword.FieldUserID, users)).Select(mutedword.FieldUserID, mutedword.FieldWord).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("read muted words: %w", err)
	}
	words := map[int64]string{}
	for _, row := range list {
		if words[row.UserID] != "" {
			words[row.UserID] += betweenWords
		}
		words[row.UserID] += row.Word
	}
	return words, nil
}

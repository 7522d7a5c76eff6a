package visibility

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"tideline/ent/mutedword"
	"tideline/feed/internal/rows"
)

// A viewer may mute words: a post of somebody else that has one is not in the viewer's
// home timeline. The words are read with the post, in the same statement, so a verdict
// knows all words that were muted before it. A fan-out pays nothing for them: it pushes
// the post, and the reads leave it out.
//
// Texts are compared in one form (normal). A word matches where it stands by itself:
// "cat" is in "Cat!" and not in "category". Where a script does not set words apart, as
// Chinese and Japanese do not, it matches anywhere. Mastodon's filters do the same.

// columnWords is the additional column with the words that the viewer mutes, of a post
// that was read for a viewer.
const columnWords = "muted_words"

// betweenWords stands between two words in the column; no word has it.
const betweenWords = "\n"

// wordsOf is the SQL expression of the words that a viewer mutes. The database computes
// it once a statement.
func wordsOf(viewer string) string {
	return "(SELECT coalesce(string_agg(w.word, '" + betweenWords + "'), '') FROM " + mutedword.Table + " w WHERE w.user_id = " + viewer + ")"
}

// NormalWord returns a word or phrase in the form in which it is compared, and its head:
// the first part of it. The head is empty if the text has nothing to be found by.
func NormalWord(word string) (normalised, head string) {
	normalised = strings.Join(strings.Fields(normal(word)), " ")
	for part := range parts(normalised) {
		return normalised, part
	}
	return normalised, ""
}

// normal is a text in the form in which words are compared: Unicode's NFKC, so that wide
// and narrow letters are the same, and folded, so that case makes no difference.
func normal(text string) string {
	return cases.Fold().String(norm.NFKC.String(strings.ToValidUTF8(text, "\uFFFD")))
}

// apart reports whether a script sets words of this letter apart by spaces.
func apart(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) &&
		!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// parts yields what a text in normal form is made of: each run of letters that are set
// apart, and each other character that is no space. A word that is in the text begins
// with one of them.
func parts(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for text != "" {
			end := strings.IndexFunc(text, func(r rune) bool { return !apart(r) })
			if end < 0 {
				end = len(text)
			}
			space := false
			if end == 0 {
				r, size := utf8.DecodeRuneInString(text)
				end, space = size, unicode.IsSpace(r)
			}
			if !space && !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// hasWord reports whether a text in normal form has a word.
func hasWord(text, word string) bool {
	first, _ := utf8.DecodeRuneInString(word)
	last, _ := utf8.DecodeLastRuneInString(word)
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		begins, ends := !apart(first) || !apart(before), !apart(last) || !apart(after)
		if begins && ends {
			return true
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		from = at + size
	}
}

// hasAny reports whether a text has one of the words of columnWords.
func hasAny(text, words string) bool {
	if words == "" {
		return false
	}
	text = spaced(text)
	for word := range strings.SplitSeq(words, betweenWords) {
		if hasWord(text, word) {
			return true
		}
	}
	return false
}

// spaced is normal with one space for each run of white space, as phrases have it.
func spaced(text string) string { return strings.Join(strings.Fields(normal(text)), " ") }

// muters returns those of the users who mute a word of the text.
//
// Cost: one query, of an index range for each part of the text.
func (r *Reader) muters(ctx context.Context, text string, users []int64) (map[int64]bool, error) {
	text = spaced(text)
	heads := slices.Collect(parts(text))
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
		if !muting[user] && hasWord(text, word) {
			muting[user] = true
		}
	}
	return muting, rows.Wrap("read muted words", found.Err())
}

// MutedWords returns the words of those of the users who mute any, with line breaks between
// them.
//
// Cost: one query, of an index range a user.
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

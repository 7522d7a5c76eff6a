// Package mention finds the mentions of users in a text.
//
// A mention is an @ (or the wide ＠) before a handle: 1 to 30 characters of a-z, 0-9 and _, as small,
// capital or wide letters. The handle ends at the first other character.
//
// A mention stands apart. Letters, digits, marks, _ and signs directly before the sign or directly
// after the handle make it part of a longer word: ada@example.org, @ada@example.org and @josé mention
// nobody. Scripts that do not separate words by spaces, such as Chinese, Japanese and Thai, are an
// exception: 你好@ada你好 mentions ada (text.Apart lists them). Invisible characters, such as joiners,
// do not count: the next visible character decides. The range of a mention does not include them.
//
// An address contains no mentions: neither a web address, with https:// or without (example.org/@ada),
// nor the address of a user of another service (@ada@example.org of ActivityPub, @ada:example.org of
// Matrix, @ada.example.org of Bluesky).
//
// In does not know which users exist: a mention may name none.
//
// The app links mentions by the same rule, in web/app/mention.ts; testdata/cases.json has cases for both.
package mention

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"tideline/feed/internal/text"
)

const (
	// Max is how many mentions of a text count: the first ones.
	Max = 30
	// maxHandle is account.MaxHandle. A longer word is not a mention.
	maxHandle = 30
)

// Mention is a part of a text that names a user.
type Mention struct {
	// Handle is the handle in its folded form, as users have it.
	Handle string
	// Start and End are the range in characters (Unicode code points) of the text. Start is the index
	// of the sign, and End the index behind the handle.
	Start, End int
}

var (
	signs = text.NewSigns(`@＠`, `[A-Za-z0-9_Ａ-Ｚａ-ｚ０-９＿]+`)
	// elsewhere matches the text after a word that is part of an address: the end of a scheme, or a
	// host. The host has a dot, because people forget the space after a colon or a full stop.
	elsewhere = regexp.MustCompile(`^(?:://|[.:](?:[A-Za-z0-9-]+\.)+[A-Za-z]{2})`)
)

// In returns the mentions of a text in their order, at most Max. A handle that the text mentions twice
// has two of them.
//
// Cost: one pass over the text.
func In(s string) []Mention {
	mentions := []Mention{}
	at, index := 0, 0 // the same place, in bytes and in characters
	for sign, word := range signs.All(s, apart) {
		index += utf8.RuneCountInString(s[at:sign])
		at = sign
		mentions = append(mentions, Mention{text.Fold(word), index, index + 1 + utf8.RuneCountInString(word)})
		if len(mentions) == Max {
			break
		}
	}
	return mentions
}

// apart reports whether a word between two parts of a text is a mention.
func apart(before, word, after string) bool {
	if utf8.RuneCountInString(word) > maxHandle || elsewhere.MatchString(after) {
		return false
	}
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRightFunc(before, func(r rune) bool { return text.Ignored(r) && !text.EndsEmoji(r) }))
	next, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(after, text.Ignored))
	// A slash or a = before the sign is part of an address without https://.
	begins := text.EndsEmoji(last) || !joins(last) && last != '/' && last != '='
	return begins && !joins(next)
}

// joins reports whether a character next to a mention makes it part of a longer word.
func joins(r rune) bool {
	switch r {
	case '_', '＿', '@', '＠':
		return true
	case 'ー', 'ｰ', 'ﾞ', 'ﾟ', '\u3099', '\u309A':
		// The long vowel and voice marks of Japanese belong to no script in Unicode, so text.Apart does
		// not know them.
		return false
	}
	return text.Apart(r)
}

// Package tag finds the tags in a text.
//
// A tag is a # (or the wide ＃) before letters, digits and _ of any script, with at least one
// letter. Between them may stand characters that are part of words in some scripts: joiners, soft
// hyphens, the Hebrew geresh and gershayim, the Tibetan tsheg, and the middle dots of Catalan and
// Japanese.
//
// A tag stands apart: no letter, digit or _ comes before the sign, and the sign is not part of a
// character reference (&#39;). A web address contains no tags, with https:// or without
// (example.org/#top). Twitter and Mastodon do about the same.
//
// Tags are compared folded, see package text. Posts are found by rows of that form, which change in
// the transaction that changes the text.
//
// The app links tags by the same rule, in web/app/tag.ts; testdata/cases.json has cases for both.
package tag

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tideline/feed/internal/text"
	"tideline/feed/refusal"
)

const (
	// MaxPerPost is the maximum number of tags stored for a post. Later tags in the text are ignored.
	MaxPerPost = 30
	// MaxLength is the maximum length of a tag, in characters (Unicode code points) of its folded
	// form. A longer word is not a tag.
	MaxLength = 64
)

// Classes of characters: the first character of a tag, the following ones, and those that may stand
// between them.
const (
	letters  = `\p{L}\p{Nd}\p{Nl}_`
	within   = letters + `\p{M}`
	betweens = `\x{AD}\x{200C}\x{200D}\x{2060}\x{5F3}\x{5F4}\x{F0B}\x{F0C}\x{B7}\x{30A0}\x{30FB}\x{FF65}`
	word     = `[` + letters + `](?:[` + betweens + `]*[` + within + `])*`
)

var (
	signs = text.NewSigns(`#＃`, word)
	// folded matches a tag in its folded form.
	folded = regexp.MustCompile(`^` + word + `$`)
	// host matches the end of an address without https://, up to the slash before a sign.
	host = regexp.MustCompile(`[\p{L}\p{N}][.:][\p{L}\p{N}]\S*/$`)
)

// maxHost is how many characters before a sign an address without https:// may begin.
const maxHost = 255

// In returns the tags of a text in their folded form, without duplicates, in the order of the text,
// at most MaxPerPost.
func In(text string) []string {
	tags := []string{}
	for word := range writtenTags(text) {
		if tag, _ := normal(word); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
		if len(tags) == MaxPerPost {
			break
		}
	}
	return tags
}

// Has reports whether a text has a tag, which must be in its folded form.
func Has(text, tag string) bool {
	for word := range writtenTags(text) {
		if found, _ := normal(word); found == tag {
			return true
		}
	}
	return false
}

// Parse returns the folded form of a tag, which may have its sign or not. Error: BadInput, if the
// text cannot be a tag.
func Parse(written string) (string, error) {
	word := written
	for _, sign := range []string{"#", "＃"} {
		if after, found := strings.CutPrefix(written, sign); found {
			word = after
		}
	}
	tag, ok := normal(word)
	if !ok {
		return "", refusal.New(refusal.NotATag, "A tag consists of letters, digits and _, with at least one letter and at most %d characters.", MaxLength).In("tag")
	}
	return tag, nil
}

// writtenTags yields the tags of a text as written, without their signs.
func writtenTags(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, word := range signs.All(text, apart) {
			if _, ok := normal(word); ok && !yield(word) {
				return
			}
		}
	}
}

// apart reports whether a word between two parts of a text may be a tag.
func apart(before, _, after string) bool {
	if strings.HasSuffix(before, "&") && strings.HasPrefix(after, ";") { // a character reference such as &#39;
		return false
	}
	r, size := utf8.DecodeLastRuneInString(before)
	switch {
	case size == 0, text.EndsEmoji(r):
		return true
	case r == '/':
		return !host.MatchString(lastPart(before))
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N) && r != '_'
}

// lastPart returns the end of a text after its last white space, at most maxHost characters and the
// four that belong to a host.
func lastPart(s string) string {
	from := len(s)
	for range maxHost + 4 {
		r, size := utf8.DecodeLastRuneInString(s[:from])
		if size == 0 || unicode.IsSpace(r) {
			break
		}
		from -= size
	}
	return s[from:]
}

// normal returns the folded form of a word. ok is false if the word is not a tag. Folding may
// replace a letter by several, or by one with a space.
func normal(word string) (tag string, ok bool) {
	tag = text.Fold(word)
	if !folded.MatchString(tag) || !strings.ContainsFunc(tag, unicode.IsLetter) || utf8.RuneCountInString(tag) > MaxLength {
		return "", false
	}
	return tag, true
}

// Package tag finds the tags in a text.
//
// A tag is a # (or the wide ＃) followed by a word: letters, digits, combining marks and _ of any
// script, with at least one letter. Inside the word, between two of these characters, it may also
// have characters that some scripts use inside words: joiners, soft hyphens, the Hebrew geresh and
// gershayim, the Tibetan tsheg, and the middle dots of Catalan and Japanese.
//
// A tag stands apart: no letter, digit or _ comes before the sign, and the sign is not part of a
// character reference (&#39;). An address that begins with http:// or https:// contains no tags. In
// an address without a scheme, a # after a slash begins no tag (example.org/#top), but another #
// may (example.org/?q=#top has the tag top). Twitter and Mastodon do about the same.
//
// Tags are compared in their folded form, which text.Fold describes. The table post_tags has the
// folded tags of each post. Its rows change in the same transaction as the post's text.
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
	// MaxPerPost is how many tags of a post count: the first ones in its text. The post is not found
	// by later ones.
	MaxPerPost = 30
	// MaxLength is the maximum length of a tag, in characters (Unicode code points) of its folded
	// form. A longer word is not a tag.
	MaxLength = 64
)

// Regular expressions. The first three are contents of character classes.
const (
	first     = `\p{L}\p{Nd}\p{Nl}_`                                                                       // may begin a word
	following = first + `\p{M}`                                                                            // may follow, and may end the word
	joining   = `\x{AD}\x{200C}\x{200D}\x{2060}\x{5F3}\x{5F4}\x{F0B}\x{F0C}\x{B7}\x{30A0}\x{30FB}\x{FF65}` // only between two others
	word      = `[` + first + `](?:[` + joining + `]*[` + following + `])*`
)

var (
	// candidate matches web addresses with a scheme, which are skipped, and possible tags, whose
	// words are its first group.
	candidate = regexp.MustCompile(`\bhttps?://[^\s\v\p{Z}\x{FEFF}<>"“”«»（）【】、。，！？；：]+|[#＃](` + word + `)`)
	// foldedTag matches a tag in its folded form.
	foldedTag = regexp.MustCompile(`^` + word + `$`)
	// host matches text that ends with an address without a scheme and a slash. A host is recognised
	// by a letter or digit, a dot or colon, and another letter or digit.
	host = regexp.MustCompile(`[\p{L}\p{N}][.:][\p{L}\p{N}]\S*/$`)
)

// maxAddress is how many characters before a sign are searched for a host: the three by which a host
// is recognised, 255 more, and the slash. web/app/tag.ts has the same bound.
const maxAddress = 3 + 255 + 1

// In returns the tags of a text in their folded form, without duplicates, in the order of the text,
// at most MaxPerPost.
func In(s string) []string {
	tags := []string{}
	for written := range writtenTags(s) {
		if folded, _ := fold(written); !slices.Contains(tags, folded) {
			tags = append(tags, folded)
		}
		if len(tags) == MaxPerPost {
			break
		}
	}
	return tags
}

// Has reports whether a text has a tag, which must be in its folded form.
func Has(s, tag string) bool {
	for written := range writtenTags(s) {
		if folded, _ := fold(written); folded == tag {
			return true
		}
	}
	return false
}

// Parse returns the folded form of a tag that is given with or without its sign. Error: BadInput, if
// the input is not a tag.
func Parse(input string) (string, error) {
	unsigned := input
	for _, sign := range []string{"#", "＃"} {
		if after, found := strings.CutPrefix(input, sign); found {
			unsigned = after
		}
	}
	folded, ok := fold(unsigned)
	if !ok {
		return "", refusal.New(refusal.NotATag, "A tag consists of letters, digits and _, with at least one letter and at most %d characters.", MaxLength).In("tag")
	}
	return folded, nil
}

// writtenTags yields the tags of a text as they are written, without their signs.
func writtenTags(s string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !strings.ContainsAny(s, "#＃") {
			return
		}
		for at := 0; ; {
			found := candidate.FindStringSubmatchIndex(s[at:])
			switch {
			case found == nil:
				return
			case found[2] < 0: // a web address
				at += found[1]
				continue
			case !apart(s[:at+found[0]]), reference(s[:at+found[0]], s[at+found[3]:]):
				at += found[2]
				continue
			}
			written := s[at+found[2] : at+found[3]]
			at += found[3]
			if _, ok := fold(written); ok && !yield(written) {
				return
			}
		}
	}
}

// apart reports whether a tag may begin right after the text.
func apart(before string) bool {
	r, size := utf8.DecodeLastRuneInString(before)
	switch {
	case size == 0:
		return true
	case r == '\uFE0E' || r == '\uFE0F' || r == '\u20E3': // the marks that end an emoji
		return true
	case r == '/':
		return !host.MatchString(lastPart(before))
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N) && r != '_'
}

// lastPart returns the end of a text after its last white space, at most maxAddress characters.
func lastPart(s string) string {
	from := len(s)
	for range maxAddress {
		r, size := utf8.DecodeLastRuneInString(s[:from])
		if size == 0 || unicode.IsSpace(r) {
			break
		}
		from -= size
	}
	return s[from:]
}

// reference reports whether the text between before and after is part of a character reference such
// as &#39;.
func reference(before, after string) bool {
	return strings.HasSuffix(before, "&") && strings.HasPrefix(after, ";")
}

// fold returns the folded form of a tag. ok is false if written is not a tag. Only the folded form
// can tell: folding may replace a letter by several characters, which may include a space.
func fold(written string) (folded string, ok bool) {
	folded = text.Fold(written)
	if !foldedTag.MatchString(folded) || !strings.ContainsFunc(folded, unicode.IsLetter) || utf8.RuneCountInString(folded) > MaxLength {
		return "", false
	}
	return folded, true
}

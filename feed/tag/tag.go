// Package tag says which words of a text are tags.
//
// A tag is a # (or the wide ＃) before letters, digits and _ of any script, one letter at
// least. Between them may stand what belongs to words of some scripts: joiners, soft hyphens, the
// Hebrew geresh and gershayim, the Tibetan tsheg, and the middle dots of Catalan and Japanese.
//
// A tag stands apart: no letter, digit or _ comes before the sign, and it is no character
// reference (&#39;). What is in a web address is no tag, with https:// or without
// (example.org/#top). Twitter and Mastodon do about the same.
//
// Tags are compared folded, see package text. Posts are found by rows of that form, which change
// in the transaction that changes the text.
//
// The app links tags by the same rule, web/app/tag.ts; testdata/cases.json has cases of both.
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
	// MostOfPost is how many tags a post is found by: the first ones of its text.
	MostOfPost = 30
	// MaxLength is how long a tag may be, in characters (Unicode code points) of the form in
	// which it is compared. What is longer is no tag.
	MaxLength = 64
)

// Classes of characters: what a tag begins with, what it goes on with, and what may stand between.
const (
	letters  = `\p{L}\p{Nd}\p{Nl}_`
	within   = letters + `\p{M}`
	betweens = `\x{AD}\x{200C}\x{200D}\x{2060}\x{5F3}\x{5F4}\x{F0B}\x{F0C}\x{B7}\x{30A0}\x{30FB}\x{FF65}`
	word     = `[` + letters + `](?:[` + betweens + `]*[` + within + `])*`
)

var (
	// candidate finds what may be a tag, and addresses, to skip them.
	candidate = regexp.MustCompile(`\bhttps?://[^\s\v\p{Z}\x{FEFF}<>"“”«»（）【】、。，！？；：]+|[#＃](` + word + `)`)
	// folded is a tag in the form in which it is compared.
	folded = regexp.MustCompile(`^` + word + `$`)
	// host is a piece of an address without https://, with the slash before a sign.
	host = regexp.MustCompile(`[\p{L}\p{N}][.:][\p{L}\p{N}]\S*/$`)
)

// maxHost is how far before a sign an address without https:// may begin, in characters.
const maxHost = 255

// In returns the tags of a text in the form in which they are compared, each once, in
// their order, at most MostOfPost.
func In(text string) []string {
	tags := []string{}
	for word := range written(text) {
		if tag, _ := normal(word); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
		if len(tags) == MostOfPost {
			break
		}
	}
	return tags
}

// Has reports whether a text has a tag, which is given in the form in which tags are compared.
func Has(text, tag string) bool {
	for word := range written(text) {
		if found, _ := normal(word); found == tag {
			return true
		}
	}
	return false
}

// Parse returns a tag, with its sign or without, in the form in which it is compared. Error:
// BadInput for what is no tag in any text.
func Parse(written string) (string, error) {
	word := written
	for _, sign := range []string{"#", "＃"} {
		if after, found := strings.CutPrefix(written, sign); found {
			word = after
		}
	}
	tag, ok := normal(word)
	if !ok {
		return "", refusal.New(refusal.NotATag, "A tag has letters, digits and _, one letter at least and %d characters at most.", MaxLength).In("tag")
	}
	return tag, nil
}

// written yields the tags of a text as they are written, without their signs.
func written(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !strings.ContainsAny(text, "#＃") {
			return
		}
		for at := 0; ; {
			found := candidate.FindStringSubmatchIndex(text[at:])
			switch {
			case found == nil:
				return
			case found[2] < 0: // an address
				at += found[1]
				continue
			case !apart(text[:at+found[0]]), reference(text[:at+found[0]], text[at+found[3]:]):
				at += found[2]
				continue
			}
			word := text[at+found[2] : at+found[3]]
			at += found[3]
			if _, ok := normal(word); ok && !yield(word) {
				return
			}
		}
	}
}

// apart reports whether a tag may begin behind the text.
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

// lastPart returns the end of a text behind its last white space, at most maxHost characters and
// the four that belong to a host.
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

// reference reports whether what stands between the two is a character reference, as &#39;.
func reference(before, after string) bool {
	return strings.HasSuffix(before, "&") && strings.HasPrefix(after, ";")
}

// normal is a word in the form in which tags are compared, not ok for what is no tag. A letter
// may be others in that form, or have a space in it.
func normal(word string) (tag string, ok bool) {
	tag = text.Fold(word)
	if !folded.MatchString(tag) || !strings.ContainsFunc(tag, unicode.IsLetter) || utf8.RuneCountInString(tag) > MaxLength {
		return "", false
	}
	return tag, true
}

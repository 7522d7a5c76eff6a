// Package tag says which words of a text are tags.
//
// A tag is a # (or the wide ＃) before letters, digits and _ of any script, one letter at
// least. It stands apart: no letter, digit or _ comes before the sign, nor & or /, which are
// of entities and addresses. What is in a web address is no tag. Twitter and Mastodon do
// about the same.
//
// Tags are compared in one form: Unicode's NFKC, so that wide and narrow letters are the
// same, and folded, so that case makes no difference. Posts are found by rows of that form,
// which change in the transaction that changes the text.
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

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"tideline/feed/refusal"
)

const (
	// MostOfPost is how many tags a post is found by: the first ones of its text.
	MostOfPost = 30
	// MaxLength is how long a tag may be, in characters (Unicode code points) of the form in
	// which it is compared. What is longer is no tag.
	MaxLength = 64
)

// candidate finds what may be a tag, and addresses, to skip them.
var candidate = regexp.MustCompile(`\bhttps?://[^\s\v\p{Z}\x{FEFF}<>"“”«»（）【】、。，！？；：]+|[#＃]([\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_]*)`)

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

// Parse returns a tag, with its sign or without, in the form in which it is compared. Error:
// BadInput for what is no tag in any text.
func Parse(text string) (string, error) {
	word := text
	for _, sign := range []string{"#", "＃"} {
		if after, found := strings.CutPrefix(text, sign); found {
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
			case !apart(text[:at+found[0]]):
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
	}
	return !unicode.In(r, unicode.L, unicode.M, unicode.N) && r != '_' && r != '&' && r != '/'
}

// normal is a word in the form in which tags are compared, not ok for what is no tag. A letter
// may be others in that form, or have a space in it.
func normal(word string) (tag string, ok bool) {
	word = norm.NFKC.String(word)
	letter := false
	for i, r := range word {
		letter = letter || unicode.IsLetter(r)
		if r != '_' && !unicode.In(r, unicode.L, unicode.Nd) && (i == 0 || !unicode.IsMark(r)) {
			return "", false
		}
	}
	// Folding makes the large letters of Cherokee of the small ones, and the other way round.
	tag = norm.NFKC.String(strings.ToLower(cases.Fold().String(word)))
	if !letter || utf8.RuneCountInString(tag) > MaxLength {
		return "", false
	}
	return tag, true
}

package text

import (
	"iter"
	"regexp"
	"strings"
)

// address is the pattern of a web address in a text. web/app/address.ts has the same pattern.
const address = `\bhttps?://[^\s\v\p{Z}\x{FEFF}<>"“”«»（）【】、。，！？；：]+`

// Signs finds the words behind a sign, such as #tide and @ada, outside web addresses that begin with
// https:// or http://.
type Signs struct {
	signs   string
	pattern *regexp.Regexp // an address, or a sign and the group of its word
}

// NewSigns returns the Signs for words behind one of the characters of signs, which are written as in
// a character class of package regexp. word is a pattern of that package without groups.
func NewSigns(signs, word string) Signs {
	return Signs{signs, regexp.MustCompile(address + `|[` + signs + `](` + word + `)`)}
}

// All yields the words behind a sign for which apart is true, each with the index of its sign. apart
// gets the text before the sign, the word and the text after it. If it returns false, All looks for
// addresses and signs from the beginning of the word on.
func (s Signs) All(text string, apart func(before, word, after string) bool) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if !strings.ContainsAny(text, s.signs) {
			return
		}
		for at := 0; ; {
			found := s.pattern.FindStringSubmatchIndex(text[at:])
			if found == nil {
				return
			}
			if found[2] < 0 { // an address
				at += found[1]
				continue
			}
			sign, begin, end := at+found[0], at+found[2], at+found[3]
			if at = begin; !apart(text[:sign], text[begin:end], text[end:]) {
				continue
			}
			if at = end; !yield(sign, text[begin:end]) {
				return
			}
		}
	}
}

// EndsEmoji reports whether r is one of the marks that end an emoji. The character before the mark
// may be a letter or a digit.
func EndsEmoji(r rune) bool { return r == '\uFE0E' || r == '\uFE0F' || r == '\u20E3' }

package text

import (
	"iter"
	"strings"
	"unicode"
)

// Apart reports whether r belongs to a script that separates words by spaces. Chinese and Japanese,
// among others, do not: there a word may begin and end anywhere.
func Apart(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)) &&
		!unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// Beginnings yields the parts of a folded text between spaces, each from every place on at which a
// word may begin: for "o'neil 李小龙" it yields "o'neil", "'neil", "neil", "李小龙", "小龙" and "龙". If a
// word of the text begins with a query, one of them begins with the query.
func Beginnings(folded string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.FieldsSeq(folded) {
			before := ' '
			for at, r := range part {
				if (!Apart(before) || !Apart(r)) && !yield(part[at:]) {
					return
				}
				before = r
			}
		}
	}
}

// Cut returns the first n characters of a text.
func Cut(s string, n int) string {
	for at := range s {
		if n--; n < 0 {
			return s[:at]
		}
	}
	return s
}

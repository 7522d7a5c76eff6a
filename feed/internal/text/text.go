// Package text checks the texts that users write.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tideline/feed/refusal"
)

// Clean returns s with line ends as \n and without white space around it. It
// refuses all control characters but line breaks and tabs. Least and most bound its
// length in characters (Unicode code points); what names the text in the refusal.
// Error: BadInput.
func Clean(what, s string, least, most int) (string, error) {
	if !utf8.ValidString(s) {
		return "", refusal.New(refusal.BadInput, "%s is not valid Unicode.", what)
	}
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return "", refusal.New(refusal.BadInput, "%s must not have control characters.", what)
		}
	}
	switch n := utf8.RuneCountInString(s); {
	case n < least:
		return "", refusal.New(refusal.BadInput, "%s must not be empty.", what)
	case n > most:
		return "", refusal.New(refusal.BadInput, "%s has %d characters; at most %d are allowed.", what, n, most)
	}
	return s, nil
}

// CleanLine is Clean for a text on one line. Error: BadInput.
func CleanLine(what, s string, least, most int) (string, error) {
	if strings.ContainsAny(s, "\n\r\t") {
		return "", refusal.New(refusal.BadInput, "%s must be on one line.", what)
	}
	return Clean(what, s, least, most)
}

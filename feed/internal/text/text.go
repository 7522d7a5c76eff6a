// Package text checks the texts that users write.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tideline/feed/refusal"
)

// Field is what a user writes somewhere: how a refusal names it, and the bounds of its
// length in characters (Unicode code points).
type Field struct {
	What        string // in a sentence, as "The name"
	Name        string // of the argument, or of the input's field
	Limit       string // what the upper bound is called
	Least, Most int
}

// Clean returns s with line ends as \n and without white space around it. It refuses all
// control characters but line breaks and tabs, and what is too short or too long. Error:
// BadInput.
func (f Field) Clean(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", refusal.New(refusal.NotText, "%s is not valid Unicode.", f.What).In(f.Name)
	}
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return "", refusal.New(refusal.NotText, "%s must not have control characters.", f.What).In(f.Name)
		}
	}
	switch n := utf8.RuneCountInString(s); {
	case n < f.Least:
		return "", refusal.New(refusal.Empty, "%s must not be empty.", f.What).In(f.Name)
	case n > f.Most:
		return "", refusal.New(refusal.TooLong, "%s has %d characters; at most %d are allowed.", f.What, n, f.Most).In(f.Name).Beyond(f.Limit, f.Most, n)
	}
	return s, nil
}

// CleanLine is Clean for a text on one line. Error: BadInput.
func (f Field) CleanLine(s string) (string, error) {
	if strings.ContainsAny(s, "\n\r\t") {
		return "", refusal.New(refusal.NotOneLine, "%s must be on one line.", f.What).In(f.Name)
	}
	return f.Clean(s)
}

// OfPost is the text of a post of at most so many characters.
func OfPost(most int) Field {
	return Field{What: "The text", Name: "text", Limit: "postLength", Least: 1, Most: most}
}

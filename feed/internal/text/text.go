// Package text checks the texts that users write, and folds them for comparison. Names, handles,
// tags, muted words and queries are compared in one form.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tideline/feed/refusal"
)

// Field describes a text that users write: how a refusal names it, and the bounds of its length in
// characters (Unicode code points).
type Field struct {
	What        string // in a sentence, as "The name"
	Name        string // of the argument, or of the input's field
	Limit       string // name of the upper bound
	Least, Most int
}

// Clean returns s with line ends as \n and without white space around it. It refuses all control
// characters except line breaks and tabs, and a text that is too short or too long. A text of
// invisible characters counts as empty. Error: BadInput.
func (f Field) Clean(s string) (string, error) {
	s, err := f.valid(s)
	if err == nil {
		err = f.bounded(s)
	}
	if err != nil {
		return "", err
	}
	return s, nil
}

// valid is Clean without the check of the length.
func (f Field) valid(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", refusal.New(refusal.NotText, "%s is not valid Unicode.", f.What).In(f.Name)
	}
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return "", refusal.New(refusal.NotText, "%s must not have control characters.", f.What).In(f.Name)
		}
	}
	return s, nil
}

// bounded checks the length of a text.
func (f Field) bounded(s string) error {
	switch n := utf8.RuneCountInString(s); {
	case n < f.Least || f.Least > 0 && !Visible(s):
		return refusal.New(refusal.Empty, "%s must not be empty.", f.What).In(f.Name)
	case n > f.Most:
		return refusal.New(refusal.TooLong, "%s has %d characters; at most %d are allowed.", f.What, n, f.Most).In(f.Name).Beyond(f.Limit, f.Most, n)
	}
	return nil
}

// CleanLine is Clean for a text on one line. It also refuses line and paragraph separators, and
// characters that change the direction of the surrounding text. Error: BadInput.
func (f Field) CleanLine(s string) (string, error) {
	if err := f.oneLine(s); err != nil {
		return "", err
	}
	return f.Clean(s)
}

func (f Field) oneLine(s string) error {
	if strings.ContainsAny(s, "\n\r\t\v\f\u0085\u2028\u2029") {
		return refusal.New(refusal.NotOneLine, "%s must be on one line.", f.What).In(f.Name)
	}
	if strings.ContainsFunc(s, Turns) {
		return refusal.New(refusal.NotText, "%s must not have characters that change the direction of the text.", f.What).In(f.Name)
	}
	return nil
}

// perFolded is how many characters may fold into one: letters with separate marks, and ignored
// characters.
const perFolded = 16

// FoldPhrase returns a text on one line, folded by the function FoldPhrase. The bounds apply to the
// folded text. Error: BadInput.
func (f Field) FoldPhrase(s string) (string, error) {
	if err := f.oneLine(s); err != nil {
		return "", err
	}
	s, err := f.valid(s)
	if err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(s); n <= perFolded*f.Most {
		s = FoldPhrase(s)
	}
	if err := f.bounded(s); err != nil {
		return "", err
	}
	return s, nil
}

// OfPost returns the Field for the text of a post, which may have at most most characters.
func OfPost(most int) Field {
	return Field{What: "The text", Name: "text", Limit: "postLength", Least: 1, Most: most}
}

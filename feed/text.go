package feed

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what people write, in characters (Unicode code points); Config.MaxText
// is that of a post.
const (
	MaxHandle   = 30
	MaxName     = 50
	MaxBio      = 500
	MinPassword = 8
	MaxPassword = 200
	maxKey      = 200
	maxSearch   = 100
)

var handlePattern = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)

// Handle returns the handle that s means, as it is stored: without white space
// around it and an @ before it, in lower case. Error: BadInput.
func Handle(s string) (string, error) { return cleanHandle(s) }

// cleanHandle returns the handle as it is stored: handles are case-insensitive.
func cleanHandle(s string) (string, error) {
	handle := handleOf(s)
	if !handlePattern.MatchString(handle) {
		return "", refuse(BadInput, "A handle has 1 to %d characters of a-z, 0-9 and _.", MaxHandle)
	}
	return handle, nil
}

// handleOf is the handle that someone means who writes s.
func handleOf(s string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "@"))
}

func checkPassword(s string) error {
	if n := utf8.RuneCountInString(s); !utf8.ValidString(s) || n < MinPassword || n > MaxPassword {
		return refuse(BadInput, "A password has %d to %d characters.", MinPassword, MaxPassword)
	}
	return nil
}

// cleanText returns text with line ends as \n and outer white space gone, or
// the reason why it cannot be kept. Line breaks and tabs are the only control
// characters in it.
func cleanText(what, s string, least, most int) (string, error) {
	if !utf8.ValidString(s) {
		return "", refuse(BadInput, "%s is not valid Unicode.", what)
	}
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return "", refuse(BadInput, "%s must not have control characters.", what)
		}
	}
	switch n := utf8.RuneCountInString(s); {
	case n < least:
		return "", refuse(BadInput, "%s must not be empty.", what)
	case n > most:
		return "", refuse(BadInput, "%s has %d characters; at most %d are allowed.", what, n, most)
	}
	return s, nil
}

// cleanLine is cleanText for what stands on one line.
func cleanLine(what, s string, least, most int) (string, error) {
	if strings.ContainsAny(s, "\n\r\t") {
		return "", refuse(BadInput, "%s must be on one line.", what)
	}
	return cleanText(what, s, least, most)
}

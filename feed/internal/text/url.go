package text

import (
	"net/url"
	"strings"
	"unicode"

	"tideline/feed/refusal"
)

// CleanURL returns the address of a page or of a picture, without white space around it. It refuses
// an address that is not http or https, has no host, or names a user: a link must not run anything,
// nor look as if it led somewhere else. An empty address stays empty. Error: BadInput.
func (f Field) CleanURL(s string) (string, error) {
	s, err := f.CleanLine(s)
	if err != nil || s == "" {
		return "", err
	}
	u, err := url.Parse(s)
	bad := func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("<>\"\\^`{|}", r) }
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Opaque != "" || strings.ContainsFunc(s, bad) {
		return "", refusal.New(refusal.NotAURL, "%s must be an address that begins with https:// or http://.", f.What).In(f.Name)
	}
	return s, nil
}

package account

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"tideline/ent"
	"tideline/feed/internal/text"
	"tideline/feed/refusal"
)

// Bounds of URLs in a profile: characters of each URL, and the number of links.
const (
	MaxAvatarURL = 500
	MaxLink      = 200
	MaxLinks     = 5
)

var (
	avatarField = text.Field{What: "The picture", Name: "avatarUrl", Limit: "avatarUrlLength", Most: MaxAvatarURL}
	linkField   = text.Field{What: "A link", Name: "links", Limit: "linkLength", Least: 1, Most: MaxLink}
)

// AvatarHosts lists the hosts whose pictures are shown. An empty list shows no pictures, because
// a picture's host sees the address of everybody who looks at it. An entry is example.org,
// *.example.org for all hosts below it, either of them with a :port, or * for any host.
type AvatarHosts []string

var hostPattern = regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?)$`)

// IsHost reports whether an entry of AvatarHosts is valid.
func IsHost(entry string) bool { return hostPattern.MatchString(entry) }

// Allow reports whether a picture at the URL may be shown.
func (h AvatarHosts) Allow(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Host)
	if port := u.Port(); port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		host = strings.ToLower(u.Hostname())
	}
	return slices.ContainsFunc(h, func(allowed string) bool {
		below, wild := strings.CutPrefix(allowed, "*.")
		return allowed == "*" || allowed == host || wild && strings.HasSuffix(host, "."+below)
	})
}

// Of returns the URL of the user's picture, or nil if there is none that may be shown.
func (h AvatarHosts) Of(u *ent.User) *string {
	if u.AvatarURL == "" || !h.Allow(u.AvatarURL) {
		return nil
	}
	return &u.AvatarURL
}

// CleanAvatar validates and normalises the URL of a picture on any host. Error: BadInput.
func CleanAvatar(address string) (string, error) { return avatarField.CleanURL(address) }

// clean is like CleanAvatar, but accepts only allowed hosts.
func (h AvatarHosts) clean(address string) (string, error) {
	address, err := CleanAvatar(address)
	if err == nil && address != "" && !h.Allow(address) {
		err = refusal.New(refusal.HostNotAllowed, "This server shows no pictures of that host.").In("avatarUrl")
	}
	return address, err
}

// CleanLinks validates links and returns them in the form that a user's row stores. Error:
// BadInput.
func CleanLinks(links []string) (string, error) {
	if len(links) > MaxLinks {
		return "", refusal.New(refusal.TooMany, "A profile has at most %d links.", MaxLinks).In("links").Beyond("links", MaxLinks, len(links))
	}
	kept := make([]string, len(links))
	for i, link := range links {
		var err error
		if kept[i], err = linkField.CleanURL(link); err != nil {
			return "", err
		}
	}
	return strings.Join(kept, "\n"), nil
}

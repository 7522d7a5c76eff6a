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

// Bounds of addresses in a profile: characters of each, and how many links.
const (
	MaxAvatarURL = 500
	MaxLink      = 200
	MaxLinks     = 5
)

var (
	avatarField = text.Field{What: "The picture", Name: "avatarUrl", Limit: "avatarUrlLength", Most: MaxAvatarURL}
	linkField   = text.Field{What: "A link", Name: "links", Limit: "linkLength", Least: 1, Most: MaxLink}
)

// AvatarHosts are the hosts whose pictures are shown. Whoever looks at a picture tells its
// host their address, so without any no picture is shown. Entries are example.org,
// *.example.org for all hosts below it, either with a :port, or * alone for any host.
type AvatarHosts []string

var hostPattern = regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?)$`)

// IsHost reports whether an entry of AvatarHosts is one.
func IsHost(entry string) bool { return hostPattern.MatchString(entry) }

// Allow reports whether pictures at the address are shown.
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

// Of returns the address of the user's picture; nil where there is none that is shown.
func (h AvatarHosts) Of(u *ent.User) *string {
	if u.AvatarURL == "" || !h.Allow(u.AvatarURL) {
		return nil
	}
	return &u.AvatarURL
}

// CleanAvatar returns the address of a picture of any host as it is kept. Error: BadInput.
func CleanAvatar(address string) (string, error) { return avatarField.CleanURL(address) }

// clean is CleanAvatar, of the hosts that are allowed.
func (h AvatarHosts) clean(address string) (string, error) {
	address, err := CleanAvatar(address)
	if err == nil && address != "" && !h.Allow(address) {
		err = refusal.New(refusal.HostNotAllowed, "This server shows no pictures of that host.").In("avatarUrl")
	}
	return address, err
}

// CleanLinks returns links in the form in which a user's row has them. Error: BadInput.
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

package incoming

import (
	"net/http"
	"net/url"
	"strings"
)

// Origins are the origins of other sites whose pages may use the API. The zero Origins has none.
type Origins struct {
	all    bool
	listed map[string]bool // as of normal
}

// NewOrigins reads a list of origins such as https://app.example.com; * is all of them.
func NewOrigins(list []string) Origins {
	o := Origins{listed: make(map[string]bool, len(list))}
	for _, origin := range list {
		o.all = o.all || origin == "*"
		o.listed[normal(origin)] = true
	}
	return o
}

// Has reports whether an origin, as a browser sends it, is on the list.
func (o Origins) Has(origin string) bool { return origin != "" && (o.all || o.listed[normal(origin)]) }

// Allow reports whether a page of ours or of the list has made the request. Programs other than
// browsers send no Origin, and are allowed. A page is ours if its host and port are the ones that
// the request is for. Either may name the default port of the page's scheme, or leave it out.
func (o Origins) Allow(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || o.Has(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && withoutDefaultPort(u.Scheme, u.Host) == withoutDefaultPort(u.Scheme, r.Host)
}

// normal is an origin in lower case, without a default port.
func normal(origin string) string {
	scheme, host, found := strings.Cut(strings.ToLower(origin), "://")
	if !found {
		return origin
	}
	return scheme + "://" + withoutDefaultPort(scheme, host)
}

var defaultPorts = map[string]string{"http": ":80", "https": ":443"}

func withoutDefaultPort(scheme, host string) string {
	return strings.TrimSuffix(strings.ToLower(host), defaultPorts[strings.ToLower(scheme)])
}

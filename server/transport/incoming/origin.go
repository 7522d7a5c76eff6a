package incoming

import (
	"net/http"
	"net/url"
	"strings"
)

// Origins is a set of other sites' origins whose pages may use the API. The zero Origins is empty.
type Origins struct {
	all    bool
	listed map[string]bool // keys are as returned by normal
}

// NewOrigins returns the set of the listed origins, such as https://app.example.com. The
// entry * matches all origins.
func NewOrigins(list []string) Origins {
	o := Origins{listed: make(map[string]bool, len(list))}
	for _, origin := range list {
		o.all = o.all || origin == "*"
		o.listed[normal(origin)] = true
	}
	return o
}

// Has reports whether the set contains the origin, a value of the header Origin.
func (o Origins) Has(origin string) bool { return origin != "" && (o.all || o.listed[normal(origin)]) }

// Allow reports whether the request comes from our own page or from an origin in the set. Programs other than
// browsers send no Origin and are allowed. A page is our own if its host and port are the request's. Either
// host may include or omit the default port of the page's scheme.
func (o Origins) Allow(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || o.Has(origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && withoutDefaultPort(u.Scheme, u.Host) == withoutDefaultPort(u.Scheme, r.Host)
}

// normal returns an origin in lower case and without a default port, and anything else unchanged.
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

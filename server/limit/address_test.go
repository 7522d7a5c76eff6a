package limit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddressOf(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1234":            "192.0.2.7",
		"[::ffff:192.0.2.7]:1234":   "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"pipe":                      "pipe",
	} {
		require.Equal(t, want, AddressOf(remote), remote)
	}
}

func TestProxies(t *testing.T) {
	networks := []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32"}
	behind := func(header string) *Limits {
		p, err := newProxies(networks, header)
		require.NoError(t, err)
		return &Limits{proxies: p}
	}
	const header, standard = "X-Forwarded-For", "Forwarded"
	for name, tc := range map[string]struct {
		from, header string
		values       []string
		want         string
	}{
		"direct":                  {"203.0.113.9:1", header, nil, "203.0.113.9"},
		"untrusted claim":         {"203.0.113.9:1", header, []string{"198.51.100.1"}, "203.0.113.9"},
		"one proxy":               {"10.1.2.3:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"a single address":        {"192.0.2.1:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"its neighbour":           {"192.0.2.2:1", header, []string{"198.51.100.1"}, "192.0.2.2"},
		"two proxies":             {"10.1.2.3:1", header, []string{"198.51.100.1, 10.9.9.9"}, "198.51.100.1"},
		"two lines":               {"10.1.2.3:1", header, []string{"198.51.100.1", "10.9.9.9"}, "198.51.100.1"},
		"client lies":             {"10.1.2.3:1", header, []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		"client lies of a proxy":  {"10.1.2.3:1", header, []string{"8.8.8.8, 10.0.0.1, 198.51.100.1"}, "198.51.100.1"},
		"all are proxies":         {"10.1.2.3:1", header, []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"},
		"nothing said":            {"10.1.2.3:1", header, nil, "10.1.2.3"},
		"nonsense":                {"10.1.2.3:1", header, []string{"198.51.100.1, nonsense"}, "10.1.2.3"},
		"nonsense behind a proxy": {"10.1.2.3:1", header, []string{"nonsense, 10.4.4.4"}, "10.4.4.4"},
		"port":                    {"10.1.2.3:1", header, []string{"198.51.100.1:4711"}, "198.51.100.1"},
		"IPv6":                    {"[2001:db8::1]:1", header, []string{"2001:db9:1:2::3"}, "2001:db9:1:2::/64"},
		"IPv6 in brackets":        {"10.1.2.3:1", header, []string{"[2001:db9:1:2::3]:80"}, "2001:db9:1:2::/64"},
		"mapped proxy":            {"[::ffff:10.1.2.3]:1", header, []string{"198.51.100.1"}, "198.51.100.1"},
		"the other header":        {"10.1.2.3:1", standard, []string{"for=198.51.100.1"}, "10.1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = tc.from
			r.Header[tc.header] = tc.values
			got := ""
			behind("").ResolveAddress(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = AddressOf(r.RemoteAddr) })).
				ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, tc.want, got)
		})
	}
	for value, want := range map[string]string{
		`for=198.51.100.1`: "198.51.100.1", `proto=https;For="198.51.100.1:80";by=10.0.0.1`: "198.51.100.1",
		`for="[2001:db9:1:2::3]:80"`: "2001:db9:1:2::/64", `for=_hidden`: "10.1.2.3", `for=unknown`: "10.1.2.3",
		`for=8.8.8.8, for=198.51.100.1, for=10.0.0.7`: "198.51.100.1", `proto=https`: "10.1.2.3", `for="[2001:db9:1:2::3]"`: "2001:db9:1:2::/64",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.1.2.3:1"
		r.Header.Set(standard, value)
		r.Header.Set(header, "203.0.113.1")
		behind(headerForwarded).ResolveAddress(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, want, AddressOf(r.RemoteAddr), value)
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, tc := range []struct{ from, header, name, value, want string }{
		{"10.1.2.3:1", "", "X-Forwarded-Proto", "https", "https"},
		{"10.1.2.3:1", "", "X-Forwarded-Proto", "http", ""},
		{"10.1.2.3:1", "", "Forwarded", "proto=https", ""},
		{"203.0.113.9:1", "", "X-Forwarded-Proto", "https", ""},
		{"10.1.2.3:1", headerForwarded, "Forwarded", "for=8.8.8.8;proto=http, for=198.51.100.1;proto=HTTPS", "https"},
		{"10.1.2.3:1", headerForwarded, "Forwarded", "proto=https, for=198.51.100.1", ""},
		{"10.1.2.3:1", headerForwarded, "X-Forwarded-Proto", "https", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.from
		r.Header.Set(tc.name, tc.value)
		behind(tc.header).ResolveAddress(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Equal(t, tc.want, r.URL.Scheme, "%+v", tc)
		})).ServeHTTP(httptest.NewRecorder(), r)
	}
}

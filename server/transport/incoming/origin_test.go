package incoming

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOriginsAllow(t *testing.T) {
	t.Parallel()
	listed := NewOrigins([]string{"https://Friend.example:443", "http://other.example:8080"})
	for _, c := range []struct {
		host, origin string
		allowed      bool
	}{
		{"feed.example.com", "", true},
		{"feed.example.com", "https://feed.example.com", true},
		{"feed.example.com:443", "https://feed.example.com", true},
		{"feed.example.com", "https://feed.example.com:443", true},
		{"feed.example.com:80", "http://feed.example.com", true},
		{"FEED.example.com:443", "https://feed.EXAMPLE.com", true},
		{"feed.example.com:8443", "https://feed.example.com:8443", true},
		{"[::1]:443", "https://[::1]", true},
		{"feed.example.com:80", "https://feed.example.com", false},
		{"feed.example.com:443", "http://feed.example.com", false},
		{"feed.example.com:8443", "https://feed.example.com", false},
		{"feed.example.com", "https://feed.example.com:8443", false},
		{"feed.example.com", "https://evil.example", false},
		{"feed.example.com", "https://feed.example.com.evil.example", false},
		{"feed.example.com", "null", false},
		{"", "null", false},
		{"feed.example.com", "https://friend.example", true},
		{"feed.example.com", "http://friend.example", false},
		{"feed.example.com", "http://other.example:8080", true},
		{"feed.example.com", "http://other.example", false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/graphql", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		require.Equal(t, c.allowed, listed.Allow(r), "%+v", c)
		require.True(t, NewOrigins([]string{"*"}).Allow(r))
	}
}

package hostile

import (
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A login does not reveal whether a handle exists. A sign-up with a taken handle counts
// towards the rate limit like any other.
func TestAccounts(t *testing.T) {
	p := start(t, "--rate-accounts=3") // allows a burst of six
	const logIn = `mutation($h: String!) { logIn(input: {handle: $h, password: "wrong horse"}) { token } }`
	const signUp = `mutation($h: String!) { signUp(input: {handle: $h, password: "correct horse"}) { token } }`
	p.signUp("x")
	taken, unknown := p.ask(logIn, map[string]any{"h": "x"}), p.ask(logIn, map[string]any{"h": "nobody"})
	require.Contains(t, taken.body, `"UNAUTHENTICATED"`)
	require.Equal(t, taken.body, unknown.body)
	require.Equal(t, taken.status, unknown.status)
	for range 3 {
		require.Contains(t, p.ask(signUp, map[string]any{"h": "x"}).body, `"CONFLICT"`)
	}
	for _, mutation := range []string{signUp, logIn} {
		refused := p.ask(mutation, map[string]any{"h": "x"})
		require.Equal(t, http.StatusTooManyRequests, refused.status)
		require.Regexp(t, regexp.MustCompile(`^[1-9][0-9]*$`), refused.header.Get("Retry-After"))
		require.Contains(t, refused.body, `"RATE_LIMITED"`)
		require.Less(t, refused.took, refusal)
	}
	require.Equal(t, http.StatusOK, p.ask("{__typename}", nil).status, "reading goes on")
}

// Pages of other sites get no CORS permission, and the security headers keep a browser from
// showing an answer as a page.
func TestPagesOfOtherSites(t *testing.T) {
	p := start(t, "--allowed-origins=https://friend.example")
	for origin, allowed := range map[string]string{"https://friend.example": "https://friend.example", "https://evil.example": "", "null": ""} {
		for _, method := range []string{http.MethodPost, http.MethodOptions} {
			got := p.send(`{"query":"{__typename}"}`, func(r *http.Request) {
				r.Method = method
				r.Header.Set("Origin", origin)
				r.Header.Set("Access-Control-Request-Method", "POST")
			})
			require.Equal(t, allowed, got.header.Get("Access-Control-Allow-Origin"), "%s %s", method, origin)
			require.Empty(t, got.header.Get("Access-Control-Allow-Credentials"))
			require.Contains(t, got.header.Values("Vary"), "Origin")
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			} {
				require.Equal(t, want, got.header.Get(header))
			}
		}
	}
	// A form, or a script without a CORS preflight, can send only these content types.
	for _, simple := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		got := p.send(`{"query":"{__typename}"}`, func(r *http.Request) { r.Header.Set("Content-Type", simple) })
		require.Equal(t, http.StatusUnsupportedMediaType, got.status, simple)
	}
	got := p.send("", func(r *http.Request) { r.URL.RawQuery = "query=mutation{logOut}" })
	require.Equal(t, http.StatusMethodNotAllowed, got.status, "a link changes nothing")
}

// A connection that never completes its headers is closed.
func TestSlowHeadersAreCutOff(t *testing.T) {
	p := start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /graphql HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.Copy(io.Discard, conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server has closed it")
}

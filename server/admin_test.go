package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
	"tideline/storage/storagetest"
)

// With an address for operators, the public address serves no information for operators.
func TestOperatorsHaveAnAddressOfTheirOwn(t *testing.T) {
	url, stop, log := startLogged(t, Serve, "--admin-addr=127.0.0.1:0", "--log-level=info")
	admin := adminURL(t, log)
	for path, want := range map[string]string{
		"/livez": `"live":true`, "/readyz": `"sql":"ok"`, "/metrics": "\ntideline_build_info{", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the parts have been asked only after a moment
			_, body := servertest.Ask(t, http.MethodGet, admin+path, "")
			assert.Contains(c, body, want, path)
		}, 30*time.Second, 10*time.Millisecond)
	}
	status, _ := servertest.Ask(t, http.MethodGet, admin+"/debug/pprof/cmdline", "")
	require.Equal(t, http.StatusNotFound, status, "flags may have secrets")
	status, _ = servertest.Ask(t, http.MethodPost, admin+"/graphql", `{"query":"{__typename}"}`)
	require.Equal(t, http.StatusMethodNotAllowed, status, "there are files alone")
	_, body := servertest.Ask(t, http.MethodGet, admin+"/", "")
	require.Contains(t, body, `<div id="admin">`)
	status, body = servertest.Ask(t, http.MethodGet, admin+"/api/snapshot", "")
	require.Equal(t, http.StatusUnauthorized, status, body)
	status, body = servertest.Ask(t, http.MethodGet, url+"/api/snapshot", "")
	require.Equal(t, http.StatusNotFound, status, body)

	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		_, body := servertest.Ask(t, http.MethodGet, url+path, "")
		require.NotContains(t, body, "tideline_build_info", path)
		require.NotContains(t, body, "goroutine", path)
	}
	status, _ = servertest.Ask(t, http.MethodGet, url+"/livez", "")
	require.Equal(t, http.StatusOK, status)
	for _, path := range []string{"/livez", "/metrics", "/debug/pprof/", "/api/snapshot", "/"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin+path, nil)
		require.NoError(t, err)
		r.Host = "evil.example:8090"
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusMisdirectedRequest, response.StatusCode, path)
	}
	require.NoError(t, stop())
}

// The operators' address refuses requests of a page whose name resolves to it (DNS rebinding),
// since they have that name as Host.
func TestOperatorsAreAnsweredUnderOwnNamesOnly(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	require.NoError(t, err)
	for _, role := range []Role{Serve, Worker} {
		c, err := parse(t, "--admin-addr=ops.example.org:8090", "--admin-hosts=tideline,Metrics.Example.Org")
		require.NoError(t, err)
		log := &syncBuffer{}
		p := &process{config: c, role: role, log: slog.New(slog.NewTextHandler(log, nil))}
		h := p.ownNames(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		ask := func(host string) int {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		for _, host := range []string{
			"127.0.0.1:8090", "10.0.0.5", "[::1]:8090", "[fe80::1]", "localhost:8090", "LOCALHOST", machine, machine + ":8090",
			"ops.example.org:8090", "tideline", "metrics.example.org.:9", "",
		} {
			require.Equal(t, http.StatusNoContent, ask(host), host)
		}
		require.Empty(t, log.String())
		for _, host := range []string{"evil.example:8090", "localhost.evil.example", "127.0.0.1.evil.example:8090", "example.org", ":8090x", "[evil]:1"} {
			require.Equal(t, http.StatusMisdirectedRequest, ask(host), host)
		}
		require.Contains(t, log.String(), `level=WARN`)
		require.Contains(t, log.String(), `host=evil.example:8090`)
	}
}

func TestOperatorsOfAWorker(t *testing.T) {
	config := storagetest.Config(storagetest.Real(t))
	c, err := parse(t, "--admin-addr=127.0.0.1:0", "--database-url="+config.DatabaseURL, "--redis-url="+config.RedisURL)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	log := &syncBuffer{}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, Worker, Console{Out: io.Discard, Log: log}) }()
	_, body := servertest.Ask(t, http.MethodGet, adminURL(t, log)+"/metrics", "")
	require.Contains(t, body, "\ntideline_queue_jobs{")
	for _, path := range []string{"/", "/api/snapshot"} {
		status, _ := servertest.Ask(t, http.MethodGet, adminURL(t, log)+path, "")
		require.Equal(t, http.StatusNotFound, status, "the page is at servers")
	}
	cancel()
	require.NoError(t, <-ended)
}

// adminURL returns the operators' address from the log.
func adminURL(t *testing.T, log *syncBuffer) string {
	t.Helper()
	var found []string
	require.Eventually(t, func() bool {
		found = regexp.MustCompile(`"operators are answered" url=(http://\S+)/ `).FindStringSubmatch(log.String())
		return found != nil
	}, 30*time.Second, 10*time.Millisecond)
	return found[1]
}

func TestHealthURL(t *testing.T) {
	for want, args := range map[string][]string{
		"http://127.0.0.1:8080": nil,
		"http://127.0.0.1:81":   {"--addr=:81"},
		"http://127.0.0.1:82":   {"--addr=[::]:82"},
		"http://[::1]:83":       {"--addr=[::1]:83"},
		"https://127.0.0.1:84":  {"--addr=0.0.0.0:84", "--tls-cert=c", "--tls-key=k"},
		"http://127.0.0.1:85":   {"--addr=:81", "--admin-addr=:85", "--tls-cert=c", "--tls-key=k"},
		"http://10.0.0.1:86":    {"--admin-addr=10.0.0.1:86"},
	} {
		c, err := parse(t, args...)
		require.NoError(t, err)
		require.Equal(t, want, c.HealthURL())
	}
}

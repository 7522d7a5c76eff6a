package server

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/server/internal/servertest"
	"tideline/storage/storagetest"
)

// With an address for operators, the public one tells nothing that is not public.
func TestOperatorsHaveAnAddressOfTheirOwn(t *testing.T) {
	url, stop, log := startLogged(t, Serve, "--admin-addr=127.0.0.1:0", "--log-level=info")
	admin := adminURL(t, log)
	for path, want := range map[string]string{
		"/livez": `"live":true`, "/readyz": `"sql":"ok"`, "/metrics": "\ntideline_build_info{", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		_, body := servertest.Ask(t, http.MethodGet, admin+path, "")
		require.Contains(t, body, want, path)
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
	require.NoError(t, stop())
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

// adminURL is where the log says that operators are answered.
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

package server

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/internal/fleet"
	"tideline/queue"
	"tideline/server/internal/servertest"
	"tideline/storage/storagetest"
)

// startWorker runs a worker until the test ends, or stop is called.
func startWorker(t *testing.T, args ...string) (stop func() error) {
	t.Helper()
	c, err := parse(t, args...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, Worker, Console{Out: io.Discard, Log: t.Output()}) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() }) // for a test that fails earlier
	return stop
}

// When Redis is lost, a server stays ready, since it serves from SQL, and says what that means. A worker is
// not ready. Commands that read only SQL work. When Redis is back, everything works again.
func TestServersStayReadyWithoutRedis(t *testing.T) {
	stores := storagetest.Real(t)
	config := storagetest.Config(stores)
	urls := []string{"--database-url=" + config.DatabaseURL, "--redis-url=" + config.RedisURL}
	server, stopServer := start(t, Server, urls...)
	worker := "127.0.0.1:" + strconv.Itoa(storagetest.FreePort(t))
	stopWorker := startWorker(t, append(slices.Clone(urls), "--worker-addr="+worker)...)
	await := func(url string, status int, says ...string) {
		t.Helper()
		var got int
		var body string
		require.Eventually(t, func() bool {
			got, body = servertest.Ask(t, http.MethodGet, url+"/readyz", "")
			return got == status
		}, time.Minute, 10*time.Millisecond)
		for _, words := range says {
			require.Contains(t, body, words)
		}
	}
	awaitBody := func(url string, says string) {
		t.Helper()
		require.Eventually(t, func() bool {
			status, body := servertest.Ask(t, http.MethodGet, url+"/readyz", "")
			require.Equal(t, http.StatusOK, status, body)
			return body == says
		}, time.Minute, 10*time.Millisecond)
	}
	well := `{"checks":{"ids":"ok","live":"ok","redis":"ok","sql":"ok"},"ready":true}` + "\n"
	await(server, http.StatusOK)
	await("http://"+worker, http.StatusOK)
	awaitBody(server, well)

	redis := storagetest.Redis(t, stores)
	redis.Kill()
	await("http://"+worker, http.StatusServiceUnavailable, `"redis":"failed"`, "no jobs are done")
	require.Eventually(t, func() bool {
		status, body := servertest.Ask(t, http.MethodGet, server+"/readyz", "")
		require.Equal(t, http.StatusOK, status, body)
		return strings.Contains(body, `"redis":"degraded"`) && strings.Contains(body, "pages come from SQL")
	}, time.Minute, 10*time.Millisecond)
	_, body := servertest.Ask(t, http.MethodPost, server+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){user{handle}}}"}`)
	require.Contains(t, body, `"handle":"ann"`)

	c, err := parse(t, urls...)
	require.NoError(t, err)
	b := open(t, c, SQL)
	list, err := fleet.New(b.Stores.DB, time.Now).List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	_, err = b.Queue.Stats(t.Context())
	require.NoError(t, err)
	_, err = b.Queue.List(t.Context(), queue.ListOptions{})
	require.NoError(t, err)

	redis.Start(t)
	awaitBody(server, well)
	await("http://"+worker, http.StatusOK)
	require.NoError(t, stopServer())
	require.NoError(t, stopWorker())
}

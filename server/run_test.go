package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/live"
	"tideline/storage/storagetest"
)

// start runs a process on the embedded stores and returns the URL it announces,
// and what stops it and returns Run's error.
func start(t *testing.T, role Role, args ...string) (url string, stop func() error) {
	c, err := parse(t, append([]string{"--addr=127.0.0.1:0", "--data-dir=" + t.TempDir(), "--log-level=warn"}, args...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, c, role, Console{Out: write, Log: t.Output()})
		write.CloseWithError(err)
		ended <- err
	}()
	stop = func() error {
		cancel()
		return <-ended
	}
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		if found := regexp.MustCompile(`API +(https?://\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, read)
			return strings.TrimSuffix(found[1], "/graphql"), stop
		}
	}
	require.NoError(t, stop(), "the process ended before it announced itself")
	return "", nil
}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", asJSON)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data)
}

func TestRun(t *testing.T) {
	url, stop := start(t, Serve)
	require.Eventually(t, func() bool {
		status, _ := ask(t, http.MethodGet, url+"/readyz", "")
		return status == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	for path, want := range map[string]string{
		"/livez": `"live":true`, "/readyz": `"live":"ok"`, "/metrics": "tideline_queue_jobs", "/": "<html", "/graphiql": "<html",
		"/schema.graphql": "type Subscription",
	} {
		status, body := ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, want, path)
	}
	_, body := ask(t, http.MethodPost, url+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token user{handle}}}"}`)
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, token, body)

	dialer := websocket.Dialer{Subprotocols: []string{modern}}
	conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/graphql", nil)
	require.NoError(t, err)
	response.Body.Close()
	defer conn.Close()
	p := &peer{t, conn}
	p.send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + token[1] + `"}}`)
	p.expect(`{"type":"connection_ack"}`)
	p.send(`{"id":"1","type":"subscribe","payload":{"query":"{viewer{handle}}"}}`)
	p.expect(`{"id":"1","type":"next","payload":{"data":{"viewer":{"handle":"ann"}}}}`)
	p.expect(`{"id":"1","type":"complete"}`)
	p.send(`{"id":"2","type":"subscribe","payload":{"query":"subscription{timelineEvents{__typename}}"}}`)

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	p.expectClose(websocket.CloseServiceRestart)
	require.NoError(t, <-stopped)
}

// Followers come and go, on sockets and by events. What their subscriptions cost,
// goroutines and files, goes with them: what stays of all does not hang on how
// many there were, but on how far the pools of connections have grown.
func TestNothingIsLeftBehindByFollowers(t *testing.T) {
	const each, rounds = 60, 4
	url, stop := start(t, Serve, "--rate-limit=off")
	_, body := ask(t, http.MethodPost, url+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token}}"}`)
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, token, body)
	subscribed := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, metrics := ask(t, http.MethodGet, url+"/metrics", "")
			return strings.Contains(metrics, fmt.Sprintf("\ntideline_live_subscriptions %d\n", n))
		}, 30*time.Second, 10*time.Millisecond)
	}
	const subscription = `{"query":"subscription{timelineEvents(heartbeat:1){__typename}}"}`
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	follow := func() {
		var leave []io.Closer
		for i := range each {
			if i%2 == 0 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", strings.NewReader(subscription))
				require.NoError(t, err)
				r.Header.Set("Content-Type", asJSON)
				r.Header.Set("Accept", "text/event-stream")
				r.Header.Set("Authorization", "Bearer "+token[1])
				response, err := client.Do(r)
				require.NoError(t, err)
				leave = append(leave, response.Body)
				continue
			}
			dialer := websocket.Dialer{Subprotocols: []string{modern}}
			conn, response, err := dialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/graphql", nil)
			require.NoError(t, err)
			response.Body.Close()
			leave = append(leave, conn)
			p := &peer{t, conn}
			p.send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + token[1] + `"}}`)
			p.send(`{"id":"1","type":"subscribe","payload":` + subscription + `}`)
		}
		subscribed(each)
		for _, one := range leave {
			one.Close()
		}
		subscribed(0)
	}
	files := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0 // nobody counts them here
		}
		return len(open)
	}
	follow() // the pools grow
	goroutines, before := runtime.NumGoroutine(), files()
	for range rounds {
		follow()
	}
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() < goroutines+each && files() < before+each
	}, 30*time.Second, 10*time.Millisecond, "each of %d clients has left something", rounds*each)
	t.Logf("goroutines %d, then %d; files %d, then %d", goroutines, runtime.NumGoroutine(), before, files())
	require.NoError(t, stop())
}

func TestSwitches(t *testing.T) {
	url, stop := start(t, Serve, "--production", "--metrics=off")
	for _, path := range []string{"/graphiql", "/metrics", "/schema.graphql"} {
		status, _ := ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
	_, body := ask(t, http.MethodPost, url+"/graphql", `{"query":"{__schema{queryType{name}} viewr}"}`)
	require.Contains(t, body, `"errors"`)
	require.NotContains(t, body, "Did you mean")
	_, body = ask(t, http.MethodPost, url+"/graphql", `{"query":"{__schema{queryType{name}}}"}`)
	require.NotContains(t, body, `"Query"`)
	require.Contains(t, body, `"errors"`)
	require.NoError(t, stop())
}

func TestRankDecayIsTheFeeds(t *testing.T) {
	stores := storagetest.Embedded(t)
	generator, err := ids.Open(t.Context(), stores.DB)
	require.NoError(t, err)
	c, err := parse(t, "--rank-decay=1h")
	require.NoError(t, err)
	b, err := c.backend(stores, noLog(), newMetrics())
	require.NoError(t, err)
	called, err := b.api(c, generator, live.NewHub(stores.Redis, live.HubConfig{}), noLog())
	require.NoError(t, err)
	ann := account.Viewer{ID: 1}
	require.NoError(t, stores.DB.User.Create().SetID(ann.ID).SetHandle("ann").SetName("Ann").SetPasswordHash("-").Exec(t.Context()))
	p, err := called.Feed.CreatePost(t.Context(), ann, feed.Draft{Text: "hello"})
	require.NoError(t, err)
	page, err := called.Home.Timeline(t.Context(), ann, paging.Page{}, home.Ranked)
	require.NoError(t, err)
	require.Len(t, page.Edges, 1)
	require.Equal(t, home.Weight(0, ids.TimeOf(p.ID), time.Hour), page.Edges[0].Score)
}

func TestRunRefusals(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := "--data-dir=" + t.TempDir()
	for name, c := range map[string]struct {
		role Role
		args []string
		want string
	}{
		"server without Redis":       {Server, nil, "--redis-url"},
		"worker without Redis":       {Worker, nil, "tideline serve"},
		"address in use":             {Serve, []string{"--addr=" + taken.Addr().String()}, "address already in use"},
		"schema not up to date":      {Serve, []string{"--migrate=off", "--data-dir=" + t.TempDir()}, "tideline migrate"},
		"Redis that is not there":    {Serve, []string{"--redis-url=redis://" + deadAddress(t)}, "Redis"},
		"database that is not there": {Serve, []string{"--database-url=postgres://u:topsecret@" + deadAddress(t) + "/d"}, "PostgreSQL"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := parse(t, append([]string{"--addr=127.0.0.1:0", dir}, c.args...)...)
			require.NoError(t, err)
			err = Run(t.Context(), config, c.role, Console{Out: io.Discard, Log: io.Discard})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "topsecret")
		})
	}
}

// deadAddress is a host and port where nobody listens.
func deadAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

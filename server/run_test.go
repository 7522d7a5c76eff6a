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
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tideline/feed"
	"tideline/feed/home"
	"tideline/feed/ids"
	"tideline/feed/paging"
	"tideline/feed/session"
	"tideline/server/internal/servertest"
	"tideline/storage/storagetest"
)

// start runs a process, by default on embedded stores. It returns the URL that the process announces, without
// /graphql, and a function that stops the process and returns the error of Run. The end of the test also stops it.
func start(t *testing.T, role Role, args ...string) (url string, stop func() error) {
	url, stop, _ = startLogged(t, role, args...)
	return url, stop
}

// syncBuffer collects the log of a process.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startLogged is start, and also returns the log.
func startLogged(t *testing.T, role Role, args ...string) (url string, stop func() error, log *syncBuffer) {
	log = &syncBuffer{}
	c, err := parse(t, append([]string{"--addr=127.0.0.1:0", "--data-dir=" + t.TempDir(), "--log-level=warn"}, args...)...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, c, role, Console{Out: write, Log: io.MultiWriter(log, t.Output())})
		write.CloseWithError(err)
		ended <- err
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() }) // for a test that fails earlier
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		if found := regexp.MustCompile(`API +(https?://\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, read)
			return strings.TrimSuffix(found[1], "/graphql"), stop, log
		}
	}
	require.FailNow(t, "the process ended before it announced itself", "%v", stop())
	return "", nil, log
}

func TestMain(m *testing.M) {
	storagetest.Main(m, func() error { return goleak.Find() })
}

func TestRun(t *testing.T) {
	url, stop := start(t, Serve)
	require.Eventually(t, func() bool {
		status, _ := servertest.Ask(t, http.MethodGet, url+"/readyz", "")
		return status == http.StatusOK
	}, 30*time.Second, 10*time.Millisecond)
	for path, want := range map[string]string{
		"/livez": `"live":true`, "/readyz": `"ids":"ok","live":"ok"`, "/metrics": "\ntideline_ids_ready 1\n", "/": "<html", "/graphiql": "<html",
		"/schema.graphql": "type Subscription",
	} {
		status, body := servertest.Ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusOK, status, path)
		require.Contains(t, body, want, path)
	}
	_, body := servertest.Ask(t, http.MethodPost, url+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token user{handle}}}"}`)
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, token, body)

	p := servertest.Dial(t, nil, url+"/graphql", servertest.Modern)
	p.Send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + token[1] + `"}}`)
	p.Expect(`{"type":"connection_ack"}`)
	p.Send(`{"id":"1","type":"subscribe","payload":{"query":"{viewer{handle}}"}}`)
	p.Expect(`{"id":"1","type":"next","payload":{"data":{"viewer":{"handle":"ann"}}}}`)
	p.Expect(`{"id":"1","type":"complete"}`)
	p.Send(`{"id":"2","type":"subscribe","payload":{"query":"subscription{timelineEvents{__typename}}"}}`)

	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	p.ExpectClose(websocket.CloseServiceRestart)
	require.NoError(t, <-stopped)
}

// Clients subscribe and leave, on sockets and event streams. The goroutines and files of their
// subscriptions go with them. The number that remains depends on the size of the connection pools,
// and not on the number of clients.
func TestSubscribersLeaveNothingBehind(t *testing.T) {
	const each, rounds = 60, 4
	url, stop := start(t, Serve, "--rate-limit=off")
	_, body := servertest.Ask(t, http.MethodPost, url+"/graphql",
		`{"query":"mutation{signUp(input:{handle:\"ann\",password:\"correct horse\"}){token}}"}`)
	token := regexp.MustCompile(`"token":"([^"]+)"`).FindStringSubmatch(body)
	require.NotNil(t, token, body)
	subscribed := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, metrics := servertest.Ask(t, http.MethodGet, url+"/metrics", "")
			return strings.Contains(metrics, fmt.Sprintf("\ntideline_live_subscriptions %d\n", n))
		}, 30*time.Second, 10*time.Millisecond)
	}
	const subscription = `{"query":"subscription{timelineEvents(heartbeat:1){__typename}}"}`
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	subscribeAndLeave := func() {
		var leave []io.Closer
		for i := range each {
			if i%2 == 0 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/graphql", strings.NewReader(subscription))
				require.NoError(t, err)
				r.Header.Set("Content-Type", servertest.AsJSON)
				r.Header.Set("Accept", "text/event-stream")
				r.Header.Set("Authorization", "Bearer "+token[1])
				response, err := client.Do(r)
				require.NoError(t, err)
				leave = append(leave, response.Body)
				continue
			}
			p := servertest.Dial(t, nil, url+"/graphql", servertest.Modern)
			leave = append(leave, p.Conn)
			p.Send(`{"type":"connection_init","payload":{"Authorization":"Bearer ` + token[1] + `"}}`)
			p.Send(`{"id":"1","type":"subscribe","payload":` + subscription + `}`)
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
			return 0 // unknown on this system
		}
		return len(open)
	}
	subscribeAndLeave() // lets the pools grow
	goroutines, openFiles := runtime.NumGoroutine(), files()
	for range rounds {
		subscribeAndLeave()
	}
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() < goroutines+each && files() < openFiles+each
	}, 30*time.Second, 10*time.Millisecond, "%d clients left goroutines or files behind", rounds*each)
	t.Logf("goroutines %d, then %d; files %d, then %d", goroutines, runtime.NumGoroutine(), openFiles, files())
	require.NoError(t, stop())
}

func TestSwitches(t *testing.T) {
	url, stop := start(t, Serve, "--production", "--metrics=off")
	for _, path := range []string{"/graphiql", "/metrics", "/schema.graphql"} {
		status, _ := servertest.Ask(t, http.MethodGet, url+path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
	_, body := servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"{__schema{queryType{name}} viewr}"}`)
	require.Contains(t, body, `"errors"`)
	require.NotContains(t, body, "Did you mean")
	_, body = servertest.Ask(t, http.MethodPost, url+"/graphql", `{"query":"{__schema{queryType{name}}}"}`)
	require.NotContains(t, body, `"Query"`)
	require.Contains(t, body, `"errors"`)
	require.NoError(t, stop())
}

func TestRankDecaySettingReachesTheTimeline(t *testing.T) {
	c, err := parse(t, "--rank-decay=1h", "--data-dir="+t.TempDir())
	require.NoError(t, err)
	b := open(t, c, CreateAll)
	require.NoError(t, b.IDs.Lease(t.Context()))
	ann := session.Viewer{ID: 1}
	require.NoError(t, b.Stores.DB.User.Create().SetID(ann.ID).SetHandle("ann").SetName("Ann").SetPasswordHash("-").Exec(t.Context()))
	p, err := b.Feed.CreatePost(t.Context(), ann, feed.Draft{Text: "hello"})
	require.NoError(t, err)
	page, err := b.Home.Timeline(t.Context(), ann, paging.Page{}, home.Ranked)
	require.NoError(t, err)
	require.Len(t, page.Edges, 1)
	// The two computations round in a different order.
	require.InDelta(t, ids.TimeOf(p.ID).Sub(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).Hours(), page.Edges[0].Score, 1e-9)
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

// deadAddress returns a host and port on which nobody listens.
func deadAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

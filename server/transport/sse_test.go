package transport

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/graph/exec/exectest"
)

// events is an open event stream.
type events struct {
	*testing.T
	response *http.Response
	lines    *bufio.Scanner
}

// ask sends an operation and reads the header of its answer.
func (f *fixture) ask(t *testing.T, method, token, query string) events {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	target, body := f.server.URL+"/graphql", io.Reader(strings.NewReader(`{"query":`+quoted(query)+`}`))
	if method == http.MethodGet {
		target, body = target+"?query="+url.QueryEscape(query), nil
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return events{t, response, bufio.NewScanner(response.Body)}
}

func quoted(s string) string { return `"` + s + `"` }

// next returns the next event, or "" at the end of the stream. It skips comments.
func (e events) next() (event, data string) {
	for e.lines.Scan() {
		switch line := e.lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			event = strings.TrimPrefix(line, "event: ")
		case strings.HasPrefix(line, "data:"):
			data = strings.TrimSpace(strings.TrimPrefix(line, "data:"))
		case line == "" && event != "":
			return event, data
		}
	}
	return "", ""
}

func (e events) expect(event, data string) {
	e.Helper()
	gotEvent, gotData := e.next()
	require.Equal(e, event, gotEvent)
	if data == "" {
		require.Empty(e, gotData)
	} else {
		require.JSONEq(e, data, gotData)
	}
}

// ends checks that the stream ends here.
func (e events) ends() {
	e.Helper()
	e.expect("", "")
}

func TestEventStream(t *testing.T) {
	f := newFixture(t, nil)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		e := f.ask(t, method, "alice", "subscription{count(to:2)}")
		require.Equal(t, http.StatusOK, e.response.StatusCode)
		require.Equal(t, "text/event-stream; charset=utf-8", e.response.Header.Get("Content-Type"))
		require.Equal(t, "no-store", e.response.Header.Get("Cache-Control"))
		e.expect("next", `{"data":{"count":1}}`)
		e.expect("next", `{"data":{"count":2}}`)
		e.expect("complete", "")
		e.ends()

		e = f.ask(t, method, "", "{hello}")
		e.expect("next", `{"data":{"hello":"world"}}`)
		e.expect("complete", "")
		e.ends()
	}
	e := f.ask(t, http.MethodPost, "", "mutation{set(n:3)}")
	e.expect("next", `{"data":{"set":3}}`)
	e.expect("complete", "")
}

func TestEventStreamRefuses(t *testing.T) {
	f := newFixture(t, nil)
	for query, code := range map[string]string{
		"{": "GRAPHQL_PARSE_FAILED", "{nothing}": "GRAPHQL_VALIDATION_FAILED", "subscription{refused}": "UNAUTHENTICATED",
	} {
		e := f.ask(t, http.MethodPost, "", query)
		require.Equal(t, http.StatusOK, e.response.StatusCode, "an EventSource would not read another")
		event, data := e.next()
		require.Equal(t, "next", event)
		require.Contains(t, data, `"code":"`+code+`"`)
		e.expect("complete", "")
	}
	require.Equal(t, http.StatusUnauthorized, f.ask(t, http.MethodPost, "mallory", "{hello}").response.StatusCode)
	require.Equal(t, http.StatusMethodNotAllowed, f.ask(t, http.MethodGet, "", "mutation{set(n:3)}").response.StatusCode)
}

// A stream that cannot begin is refused with a status, since it may begin later and an event would be final.
func TestEventStreamThatCannotBegin(t *testing.T) {
	f := newFixture(t, nil)
	for token, query := range map[string]string{"alice": "subscription{unavailable}", "database-down": "subscription{news}"} {
		e := f.ask(t, http.MethodPost, token, query)
		require.Equal(t, http.StatusServiceUnavailable, e.response.StatusCode)
		require.NotEmpty(t, e.response.Header.Get("Retry-After"))
	}
	e := f.ask(t, http.MethodPost, "alice", "{fail}")
	require.Equal(t, http.StatusOK, e.response.StatusCode, "a query has an answer")
}

// An incomplete stream is broken off, so that the client requests it again.
func TestEventStreamBreaksOff(t *testing.T) {
	for name, end := range map[string]func(f *fixture){
		"interrupted":     func(f *fixture) { f.news <- exectest.Interruption{} },
		"shutdown":        func(f *fixture) { require.NoError(f.t, f.sockets.shutdown(f.t.Context())) },
		"session ended":   func(f *fixture) { f.logOut("alice"); close(f.news) },
		"session watched": func(f *fixture) { f.endSession(10) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			e := f.ask(t, http.MethodPost, "alice", "subscription{news}")
			f.news <- 1
			e.expect("next", `{"data":{"news":1}}`)
			end(f)
			e.ends()
			require.Eventually(t, func() bool {
				return f.subscriptions.Load() == 0
			}, 30*time.Second, time.Millisecond)
		})
	}
}

func TestEventStreamHasAPulseAndNoticesItsEnd(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PingInterval = 20 * time.Millisecond })
	e := f.ask(t, http.MethodPost, "", "subscription{news}")
	for range 5 {
		require.True(t, e.lines.Scan())
	}
	e.response.Body.Close()
	require.Eventually(t, func() bool {
		return f.subscriptions.Load() == 0
	}, 30*time.Second, time.Millisecond)
}

func TestEventStreamThatNobodyReadsIsCutOff(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	f.ask(t, http.MethodPost, "", "subscription{flood}")
	require.Eventually(t, func() bool {
		return f.subscriptions.Load() == 0
	}, 30*time.Second, time.Millisecond)
}

func TestEventStreamsAreBounded(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxSockets = 1 })
	f.ask(t, http.MethodPost, "", "subscription{news}")
	require.Equal(t, http.StatusServiceUnavailable, f.ask(t, http.MethodPost, "", "{hello}").response.StatusCode)
}

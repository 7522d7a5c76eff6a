package server

import (
	"bufio"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/graph"
)

// The settings of the process apply to the wire: by default answers are compressed, sockets are
// not, and event streams never are.
func TestCompressionOfAProcess(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	for _, c := range []struct {
		args             []string
		answers, sockets bool
	}{
		{nil, true, false},
		{[]string{"--compress-http=off", "--compress-sockets=on"}, false, true},
	} {
		url, stop := start(t, Serve, c.args...)
		ask := func(path string, headers ...string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			require.NoError(t, err)
			r.Header.Set("Accept-Encoding", "gzip")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			response, err := client.Do(r)
			require.NoError(t, err)
			t.Cleanup(func() { response.Body.Close() })
			return response
		}
		schema := ask("/schema.graphql")
		body := io.Reader(schema.Body)
		if c.answers {
			require.Equal(t, "gzip", schema.Header.Get("Content-Encoding"))
			var err error
			body, err = gzip.NewReader(schema.Body)
			require.NoError(t, err)
		}
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, graph.Schema, string(text))
		require.Equal(t, http.StatusNotModified, ask("/schema.graphql", "If-None-Match", schema.Header.Get("ETag")).StatusCode)

		const introspection = "/graphql?query=%7B__schema%7Btypes%7Bname%20description%7D%7D%7D"
		answer := ask(introspection)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, c.answers, answer.Header.Get("Content-Encoding") == "gzip")
		require.Equal(t, http.StatusNotModified, ask(introspection, "If-None-Match", answer.Header.Get("ETag")).StatusCode)

		events := ask(introspection, "Accept", "text/event-stream")
		require.Empty(t, events.Header.Get("Content-Encoding"))
		line, err := bufio.NewReader(events.Body).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "event: next\n", line)

		conn, handshake, err := (&websocket.Dialer{EnableCompression: true, Subprotocols: []string{"graphql-transport-ws"}}).
			Dial("ws"+strings.TrimPrefix(url, "http")+"/graphql", nil)
		require.NoError(t, err)
		require.Equal(t, c.sockets, strings.Contains(handshake.Header.Get("Sec-Websocket-Extensions"), "permessage-deflate"))
		conn.Close()
		require.NoError(t, stop())
	}
}

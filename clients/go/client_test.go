package tideline_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
)

func TestErrorsSayWhatIsWrong(t *testing.T) {
	for name, at := range map[string]struct {
		status     int
		retryAfter string
		body       string
		want       tideline.Error
	}{
		"a refusal": {
			status: http.StatusOK,
			body: `{"data":null,"errors":[{"message":"The text is too long.","extensions":{"code":"BAD_USER_INPUT","reason":"TOO_LONG",
				"field":"text","limit":"postLength","allowed":5000,"given":5001}}]}`,
			want: tideline.Error{
				Code: "BAD_USER_INPUT", Reason: "TOO_LONG", Message: "The text is too long.", Field: "text", Limit: "postLength", Allowed: 5000, Given: 5001,
			},
		},
		"too much": {
			status: http.StatusTooManyRequests, retryAfter: "24",
			body: `{"errors":[{"message":"Too much.","extensions":{"code":"RATE_LIMITED","retryAfter":24}}]}`,
			want: tideline.Error{Code: "RATE_LIMITED", Message: "Too much.", RetryAfter: 24 * time.Second},
		},
		"a failure": {
			status: http.StatusOK, body: `{"errors":[{"message":"It failed.","extensions":{"code":"INTERNAL","requestId":"r1"}}]}`,
			want: tideline.Error{Code: "INTERNAL", Message: "It failed.", RequestID: "r1"},
		},
		"a proxy":            {http.StatusBadGateway, "7", "<html>", tideline.Error{Code: "HTTP_502", Message: "the response is not from a GraphQL API", RetryAfter: 7 * time.Second}},
		"a proxy with JSON":  {http.StatusBadGateway, "", `{"message":"no"}`, tideline.Error{Code: "HTTP_502", Message: "the response is not from a GraphQL API"}},
		"another program":    {http.StatusOK, "", "hello", tideline.Error{Code: "HTTP_200", Message: "the response is not from a GraphQL API"}},
		"data beside errors": {http.StatusOK, "", `{"data":{"a":1},"errors":[{"message":"no","extensions":{"code":"TIMEOUT"}}]}`, tideline.Error{Code: "TIMEOUT", Message: "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if at.retryAfter != "" {
					w.Header().Set("Retry-After", at.retryAfter)
				}
				w.WriteHeader(at.status)
				_, _ = io.WriteString(w, at.body)
			}))
			defer server.Close()
			c := tideline.Client{URL: server.URL}
			var no *tideline.Error
			require.ErrorAs(t, c.Query(t.Context(), "{ a }", nil, nil), &no)
			require.Equal(t, at.want, *no)
			if at.status != http.StatusOK {
				// The handshake of a socket returns the same error.
				_, err := c.Subscribe(t.Context(), "subscription { a }", nil)
				require.ErrorAs(t, err, &no)
				require.Equal(t, at.want, *no)
			}
		})
	}
}

func TestDataIsDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		var data struct{ Echo string }
		require.NoError(t, s.client().Query(t.Context(), "{ hello }", map[string]any{"first": 1}, &data))
		require.Equal(t, "{ hello }", data.Echo)
		require.NoError(t, s.client().Query(t.Context(), "{ hello }", nil, nil))
		var other struct{ Echo int }
		require.ErrorContains(t, s.client().Query(t.Context(), "{ hello }", nil, &other), "read the response")
	})
}

// A response that is too large is not taken for a response of another program.
func TestTooLargeResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		spaces := strings.Repeat(" ", 1<<20)
		for range 65 {
			_, _ = io.WriteString(w, spaces)
		}
	}))
	defer server.Close()
	c := tideline.Client{URL: server.URL}
	require.EqualError(t, c.Query(t.Context(), "{ a }", nil, nil), "read the response: it is larger than 64 MiB")
}

// Many calls find their token refused. The token is renewed once, and all calls continue with the new one.
func TestTokenIsRenewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		c := s.client()
		var mu sync.Mutex
		var asked []string
		present := "old"
		c.Token = func(_ context.Context, refused string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if refused != "" {
				asked, present = append(asked, refused), "good"
			}
			return present, nil
		}
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { require.NoError(t, c.Query(t.Context(), "{ a }", nil, nil)) })
		}
		calls.Wait()
		require.Equal(t, []string{"old"}, asked)

		s.locked(func() { s.token = "another" })
		c.Token = func(_ context.Context, refused string) (string, error) {
			return map[string]string{"": "good", "good": "another"}[refused], nil
		}
		sub, err := c.Subscribe(t.Context(), "subscription { a }", map[string]any{"after": "0/0", "heartbeat": 1})
		require.NoError(t, err)
		_, err = sub.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, sub.Close())
	})
}

// A source of tokens may also renew a token by itself. The client then does not go back to the token that the
// source returned before.
func TestNoOlderTokenIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		c := s.client()
		present := "old"
		next := map[string]string{"old": "good", "renewed by itself": "newest"}
		c.Token = func(_ context.Context, refused string) (string, error) {
			if refused == present {
				present = next[refused]
			}
			return present, nil
		}
		require.NoError(t, c.Query(t.Context(), "{ a }", nil, nil))

		s.locked(func() { s.token, present = "newest", "renewed by itself" })
		require.NoError(t, c.Query(t.Context(), "{ a }", nil, nil))
		require.Equal(t, "newest", present)
	})
}

func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		s.token = "another"
		c := s.client()
		err := c.Query(t.Context(), "{ a }", nil, nil)
		require.ErrorIs(t, err, tideline.ErrSessionEnded)
		var no *tideline.Error
		require.ErrorAs(t, err, &no)
		require.Equal(t, "WHY", no.Reason)

		_, err = c.Subscribe(t.Context(), "subscription { a }", nil)
		require.ErrorIs(t, err, tideline.ErrSessionEnded)
		var closed *tideline.CloseError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, 4403, closed.Code)

		// The server refuses the renewed tokens too.
		c.Token = func(_ context.Context, refused string) (string, error) { return refused + "x", nil }
		require.ErrorIs(t, c.Query(t.Context(), "{ a }", nil, nil), tideline.ErrSessionEnded)

		// If the source of tokens fails temporarily, the session has not ended.
		away := errors.New("away")
		c.Token = func(_ context.Context, refused string) (string, error) {
			if refused != "" {
				return "", away
			}
			return "old", nil
		}
		err = c.Query(t.Context(), "{ a }", nil, nil)
		require.ErrorIs(t, err, away)
		require.NotErrorIs(t, err, tideline.ErrSessionEnded)

		c.Token = nil
		require.ErrorAs(t, c.Query(t.Context(), "{ a }", nil, nil), &no)
	})
}

// serveFrames serves a socket that sends the given messages after the subscription, checks that each ping is
// answered, and then closes with 1000.
func serveFrames(t *testing.T, frames ...string) *tideline.Client {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Subprotocols: []string{"graphql-transport-ws"}}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		var m message
		_ = conn.ReadJSON(&m)
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_ack"}`))
		_ = conn.ReadJSON(&m)
		for _, frame := range frames {
			_ = conn.WriteMessage(websocket.TextMessage, []byte(frame))
			if strings.Contains(frame, "ping") && (conn.ReadJSON(&m) != nil || m.Type != "pong") {
				t.Errorf("a ping is answered by %q", m.Type)
			}
		}
		goodbye(conn, 1000, "")
		_ = conn.ReadJSON(&m) // until the client has closed
	}))
	t.Cleanup(server.Close)
	return &tideline.Client{URL: server.URL}
}

func TestResultsComeAsTheyAre(t *testing.T) {
	sub, err := serveFrames(
		t,
		`{"id":"1","type":"next","payload":{"data":{"a":1}}}`,
		`{"type":"ping"}`,
		` {"id":"1","type":"next","payload":{"data":{"a":2}}}`+"\n",
		`{"type": "next", "payload": {"data":{"a":3}}, "id": "1"}`,
		`{"type":"pong"}`,
	).Subscribe(t.Context(), "subscription { a }", nil)
	require.NoError(t, err)
	defer sub.Close()
	for _, want := range []string{`{"data":{"a":1}}`, `{"data":{"a":2}}`, `{"data":{"a":3}}`} {
		result, err := sub.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, string(result))
	}
	_, err = sub.Next(t.Context())
	var closed *tideline.CloseError
	require.ErrorAs(t, err, &closed)
	require.Equal(t, 1000, closed.Code)
}

func TestSubscriptionEnds(t *testing.T) {
	for frame, want := range map[string]string{
		`{"id":"1","type":"complete"}`: io.EOF.Error(),
		`{"id":"1","type":"error","payload":[{"message":"no","extensions":{"code":"FORBIDDEN"}}]}`: "FORBIDDEN: no",
		`{"id":"1","type":"error","payload":"what"}`:                                               `the subscription was refused: "what"`,
		`nothing`: "read a message: ",
	} {
		sub, err := serveFrames(t, frame).Subscribe(t.Context(), "subscription { a }", nil)
		require.NoError(t, err)
		_, err = sub.Next(t.Context())
		require.ErrorContains(t, err, want)
		require.NoError(t, sub.Close())
	}
}

// A server that accepts a connection and sends nothing does not block a caller beyond its context.
func TestSubscribeObeysItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1)
		defer s.close()
		s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			upgrader := websocket.Upgrader{}
			if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
				_, _, _ = conn.ReadMessage()
				_, _, _ = conn.ReadMessage() // until the client has left
				conn.Close()
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.client().Subscribe(ctx, "subscription { a }", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		began := time.Now()
		_, err = s.client().Subscribe(t.Context(), "subscription { a }", nil)
		require.Error(t, err)
		require.Equal(t, tideline.Timeout, time.Since(began))
	})
}

func BenchmarkNext(b *testing.B) {
	frame := []byte(`{"id":"1","type":"next","payload":{"data":{"timelineEvents":{"__typename":"TimelinePostAdded","edge":{"node":{"text":"hello"}}}}}}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Subprotocols: []string{"graphql-transport-ws"}, WriteBufferSize: 4096}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		var m message
		_ = conn.ReadJSON(&m)
		_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_ack"}`))
		prepared, _ := websocket.NewPreparedMessage(websocket.TextMessage, frame)
		for err == nil {
			err = conn.WritePreparedMessage(prepared)
		}
	}))
	defer server.Close()
	client := tideline.Client{URL: server.URL}
	sub, err := client.Subscribe(b.Context(), "subscription { a }", nil)
	require.NoError(b, err)
	defer sub.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sub.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

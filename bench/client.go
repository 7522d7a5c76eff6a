package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// callTimeout bounds every call and handshake.
const callTimeout = 10 * time.Second

// client calls the API over HTTP and opens sockets to it.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	return &client{url, &http.Client{
		Timeout: callTimeout,
		// No proxy and no redirect: the load reaches the given address, or none. Answers come
		// plain: to inflate them would take processors from the server that is measured.
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// refusal is an error in the answer of the API, or of a server before it.
type refusal struct {
	code    string // extensions.code, or HTTP_ and the status
	message string
	after   time.Duration // the time until the next try; 0: not given
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

// call runs an operation, decodes its data and returns the size of the answer.
// The error of an answered call is a *refusal.
func (c *client) call(ctx context.Context, token, query string, variables map[string]any, data any) (size int, err error) {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Data   json.RawMessage
		Errors []struct {
			Message    string
			Extensions struct{ Code string }
		}
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return 0, &refusal{code: fmt.Sprintf("HTTP_%d", response.StatusCode), message: "the answer is not of a GraphQL API"}
	}
	if len(answer.Errors) > 0 {
		first := answer.Errors[0]
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 without the header
		return 0, &refusal{first.Extensions.Code, first.Message, time.Duration(seconds) * time.Second}
	}
	return len(raw), json.Unmarshal(answer.Data, data)
}

// insist is call, and waits as often as the server asks for it: before the load
// begins, it obeys the rate limits.
func (c *client) insist(ctx context.Context, token, query string, variables map[string]any, data any) error {
	for {
		_, err := c.call(ctx, token, query, variables, data)
		var no *refusal
		if !errors.As(err, &no) || no.code != "RATE_LIMITED" || no.after == 0 {
			return err
		}
		select {
		case <-time.After(no.after):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// codeOf returns the code of an error for the report.
func codeOf(err error) string {
	var no *refusal
	var closed *websocket.CloseError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &no):
		return no.code
	case errors.As(err, &closed):
		return fmt.Sprintf("SOCKET_%d", closed.Code)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "TIMEOUT"
	}
	return "CONNECTION"
}

const (
	eventsQuery = `subscription {
	timelineEvents {
		__typename
		... on TimelinePostAdded { unreadCount edge { cursor score node { id text createdAt author { id handle name } } } }
	}
}`
	unreadCount = "unreadCount" // in it and in timelineQuery; --model measures it apart
)

func uncounted(query string) string { return strings.Replace(query, unreadCount, "", 1) }

// open connects a socket and subscribes to the timeline of the token's user. The
// server has the subscription when it answers a query that follows it.
func (c *client) open(ctx context.Context, token, events string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{
		HandshakeTimeout: callTimeout, Subprotocols: []string{"graphql-transport-ws"},
		ReadBufferSize: 2048, WriteBufferSize: 512,
	}
	conn, response, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(c.url, "http"), nil)
	if err != nil {
		if response != nil {
			err = &refusal{code: fmt.Sprintf("HTTP_%d", response.StatusCode), message: err.Error()}
		}
		return nil, err
	}
	if err := greet(conn, token, events); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func greet(conn *websocket.Conn, token, events string) error {
	_ = conn.SetReadDeadline(time.Now().Add(callTimeout))
	err := conn.WriteJSON(map[string]any{
		"type": "connection_init", "payload": map[string]string{"Authorization": "Bearer " + token},
	})
	if err != nil {
		return err
	}
	var ack struct{ Type string }
	if err := conn.ReadJSON(&ack); err != nil {
		return err
	}
	if ack.Type != "connection_ack" {
		return fmt.Errorf("the server answers connection_init by %q", ack.Type)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return conn.WriteJSON(map[string]any{
		"id": "1", "type": "subscribe", "payload": map[string]string{"query": events},
	})
}

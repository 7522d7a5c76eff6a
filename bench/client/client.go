// Package client calls the API of a Tideline, over HTTP or by a socket.
package client

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

// Timeout bounds every call and handshake.
const Timeout = 10 * time.Second

// Client calls one API. It is safe for concurrent use.
type Client struct {
	url  string
	HTTP *http.Client // by which it calls
}

// New returns a client of the API at url.
func New(url string) *Client {
	return &Client{url, &http.Client{
		Timeout: Timeout,
		// No proxy and no redirect: the load reaches the given address, or none. Answers come
		// plain: to inflate them would take processors from the server that is measured.
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close ends idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// Refusal is an error in the answer of the API, or of a server before it.
type Refusal struct {
	Code    string // extensions.code, or HTTP_ and the status
	Message string
	After   time.Duration // the time until the next try; 0: not given
}

// Error is the code and the message.
func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Call runs an operation, decodes its data and returns the size of the answer.
// The error of an answered call is a *Refusal.
func (c *Client) Call(ctx context.Context, token, query string, variables map[string]any, data any) (size int, err error) {
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
	response, err := c.HTTP.Do(request)
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
		return 0, &Refusal{Code: fmt.Sprintf("HTTP_%d", response.StatusCode), Message: "the answer is not of a GraphQL API"}
	}
	if len(answer.Errors) > 0 {
		first := answer.Errors[0]
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 without the header
		return 0, &Refusal{first.Extensions.Code, first.Message, time.Duration(seconds) * time.Second}
	}
	return len(raw), json.Unmarshal(answer.Data, data)
}

// Insist is Call, and waits as often as the server asks for it: before the load
// begins, it obeys the rate limits.
func (c *Client) Insist(ctx context.Context, token, query string, variables map[string]any, data any) error {
	for {
		_, err := c.Call(ctx, token, query, variables, data)
		var no *Refusal
		if !errors.As(err, &no) || no.Code != "RATE_LIMITED" || no.After == 0 {
			return err
		}
		select {
		case <-time.After(no.After):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CodeOf returns the code of an error for the report.
func CodeOf(err error) string {
	var no *Refusal
	var closed *websocket.CloseError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &no):
		return no.Code
	case errors.As(err, &closed):
		return fmt.Sprintf("SOCKET_%d", closed.Code)
	case errors.As(err, &timeout) && timeout.Timeout():
		return "TIMEOUT"
	}
	return "CONNECTION"
}

// Open connects a socket and subscribes by a query, as the token's user. The
// protocol does not tell when the subscription has begun.
func (c *Client) Open(ctx context.Context, token, query string) (*websocket.Conn, error) {
	dialer := websocket.Dialer{
		HandshakeTimeout: Timeout, Subprotocols: []string{"graphql-transport-ws"},
		ReadBufferSize: 2048, WriteBufferSize: 512,
	}
	conn, response, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(c.url, "http"), nil)
	if err != nil {
		if response != nil {
			err = &Refusal{Code: fmt.Sprintf("HTTP_%d", response.StatusCode), Message: err.Error()}
		}
		return nil, err
	}
	if err := greet(conn, token, query); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func greet(conn *websocket.Conn, token, query string) error {
	_ = conn.SetReadDeadline(time.Now().Add(Timeout))
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
		"id": "1", "type": "subscribe", "payload": map[string]string{"query": query},
	})
}

// Package client calls the API of a Tideline for many users. It uses the Go client with a
// separate token for each call.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	tideline "tideline/clients/go"
)

// Timeout bounds every call and handshake.
const Timeout = 10 * time.Second

// Client calls one API. It is safe for concurrent use.
type Client struct {
	url  string
	HTTP *http.Client // makes the calls
}

// New returns a client of the API at url.
func New(url string) *Client {
	return &Client{url, &http.Client{
		Timeout: Timeout,
		// No proxy and no redirects: the load reaches the given address or none. No compression, since
		// decompression would take processor time from the measured server.
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// as returns a client for the token's user, or for nobody if token is "".
func (c *Client) as(token string) *tideline.Client {
	user := &tideline.Client{URL: c.url, HTTP: c.HTTP}
	if token != "" {
		user.Token = tideline.Fixed(token)
	}
	return user
}

// measured decodes data and records the length of its JSON.
type measured struct {
	data  any
	bytes int
}

// UnmarshalJSON decodes the data.
func (m *measured) UnmarshalJSON(raw []byte) error {
	m.bytes = len(raw)
	return json.Unmarshal(raw, m.data)
}

// Call runs an operation, decodes its data and returns the size of the answer.
// The error of an answered call is a *tideline.Error.
func (c *Client) Call(ctx context.Context, token, query string, variables map[string]any, data any) (size int, err error) {
	m := measured{data: data}
	if err := c.as(token).Query(ctx, query, variables, &m); err != nil {
		return 0, err
	}
	return len(`{"data":}`) + m.bytes, nil
}

// Insist is Call, but waits as often as the rate limits require. It is used before the load begins.
func (c *Client) Insist(ctx context.Context, token, query string, variables map[string]any, data any) error {
	for {
		_, err := c.Call(ctx, token, query, variables, data)
		var no *tideline.Error
		if !errors.As(err, &no) || no.Code != "RATE_LIMITED" || no.RetryAfter == 0 {
			return err
		}
		select {
		case <-time.After(no.RetryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CodeOf returns the code under which the report counts an error.
func CodeOf(err error) string {
	var no *tideline.Error
	var closed *tideline.CloseError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &no):
		return no.Code
	case errors.As(err, &closed):
		return fmt.Sprintf("SOCKET_%d", closed.Code)
	case errors.Is(err, io.EOF):
		return "SUBSCRIPTION_ENDED"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "TIMEOUT"
	}
	return "CONNECTION"
}

// Open opens a connection and subscribes as the token's user. The protocol does not tell
// when the subscription has begun.
func (c *Client) Open(ctx context.Context, token, query string) (*tideline.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return c.as(token).Subscribe(ctx, query, nil)
}

// Package client calls the API of a Tideline for many users: the Go client of one, with a
// token for each call.
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

// as returns a client for the token's user; "" is nobody.
func (c *Client) as(token string) *tideline.Client {
	user := &tideline.Client{URL: c.url, HTTP: c.HTTP}
	if token != "" {
		user.Token = tideline.Fixed(token)
	}
	return user
}

// measured is data, and how long it was.
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

// Insist is Call, and waits as often as the server asks for it: before the load
// begins, it obeys the rate limits.
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

// CodeOf returns the code of an error for the report.
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

// Open connects a socket and subscribes by a query, as the token's user. The
// protocol does not tell when the subscription has begun.
func (c *Client) Open(ctx context.Context, token, query string) (*tideline.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return c.as(token).Subscribe(ctx, query, nil)
}

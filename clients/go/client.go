// Package tideline is a client of the Tideline API. A [Client] runs operations. A [Timeline] holds a user's
// home timeline: it reads it, follows it live, and resumes after an interruption. A [Conversation] does the
// same with a post and its replies.
//
// It depends on a WebSocket library and on no package of the server. All calls stop when their context ends.
// Nothing is logged: every error is returned to the caller.
package tideline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// Timeout bounds a request of a Client without an HTTP client of its own, and the start of every
	// subscription. It is longer than the server's own timeouts.
	Timeout = 35 * time.Second
	// maxRenewals is how often one call renews a refused token. The first renewal may return a token that
	// another call renewed a while ago, and that has expired since.
	maxRenewals = 2
	// maxResponse bounds a response or a message, in bytes.
	maxResponse = 64 << 20
)

// Client calls one API as one user. It is safe for concurrent use, and must not be copied.
type Client struct {
	// URL is the address of the API, such as https://example.org/graphql.
	URL string
	// Token returns the user's current token. If refused is not empty, the server has refused that token,
	// and Token returns a new one. It returns ErrSessionEnded if it cannot get a new token. Any other error
	// means that a later call may succeed. Calls with a refused token are made one at a time, and calls
	// without one concurrently. If Token is nil, nobody is signed in.
	Token func(ctx context.Context, refused string) (string, error)
	// HTTP makes the requests and opens the sockets. Defaults to a client with Timeout.
	HTTP *http.Client

	renewing sync.Mutex
	replaced string // the token of the last renewal; guarded by renewing, like renewed
	renewed  string // the token that replaces it
}

// ErrSessionEnded means that Token has no valid token, or that the server also refuses renewed tokens. If
// the server has refused a token, the error also wraps that refusal, an *Error or a *CloseError.
var ErrSessionEnded = errors.New("the session has ended")

// Fixed returns a Token function for a Client with one token. If the token is refused, the session has ended.
func Fixed(token string) func(context.Context, string) (string, error) {
	return func(_ context.Context, refused string) (string, error) {
		if refused == token {
			return "", ErrSessionEnded
		}
		return token, nil
	}
}

// Error codes that this package acts on. docs/errors.md lists all codes.
const (
	codeUnauthenticated = "UNAUTHENTICATED"
	codeBadInput        = "BAD_USER_INPUT"
	codeNotFound        = "NOT_FOUND"
	codeLimited         = "RATE_LIMITED"
	codeTimeout         = "TIMEOUT"
	codeInternal        = "INTERNAL"
	codeUnavailable     = "UNAVAILABLE"
	codeHTTP            = "HTTP_" // followed by the status
)

// Error is the first error of a response. docs/errors.md describes its fields.
type Error struct {
	// Code says what to do. It is "HTTP_" and the status if the response does not come from the API, but
	// for example from a proxy.
	Code string
	// Reason says what was wrong. It is "" if the code says everything.
	Reason string
	// Message is an English text for developers.
	Message string
	// Field is the argument or the input's field that is at fault. Limit is the name of the exceeded limit.
	// Both may be "". Allowed is the limit, and Given the value that was sent.
	Field, Limit   string
	Allowed, Given float64
	// RetryAfter is the time after which the same call is allowed. 0 means that it is unknown.
	RetryAfter time.Duration
	// RequestID identifies the error in the server's log if the code is INTERNAL.
	RequestID string
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// responseError is an error of a response in JSON.
type responseError struct {
	Message    string
	Extensions struct {
		Code, Reason, Field, Limit, RequestID string
		Allowed, Given, RetryAfter            float64
	}
}

func (e responseError) asError() *Error {
	x := e.Extensions
	return &Error{
		Code: x.Code, Reason: x.Reason, Message: e.Message, Field: x.Field, Limit: x.Limit, Allowed: x.Allowed, Given: x.Given,
		RetryAfter: time.Duration(x.RetryAfter * float64(time.Second)), RequestID: x.RequestID,
	}
}

// Query runs a query or a mutation and decodes its data into data, which may be nil. If the token is refused,
// it renews the token and repeats the operation. If a response has both data and errors, Query returns an
// *Error and may also decode the data.
//
// Errors:
//
//   - An *Error, if the server returned an error, or a proxy answered.
//   - ErrSessionEnded, or an error of Token: the operation has not been executed.
//   - Any other error comes from the context, the network, or the encoding of the variables or the response.
//
// A mutation may have been executed if the error is of the last kind, or an *Error with the code INTERNAL,
// TIMEOUT or HTTP_ and a status.
func (c *Client) Query(ctx context.Context, query string, variables map[string]any, data any) error {
	return c.authorized(ctx, func(token string) error { return c.post(ctx, token, query, variables, data) })
}

// authorized calls do with the current token, and again with a renewed token if that one is refused.
func (c *Client) authorized(ctx context.Context, do func(token string) error) error {
	if c.Token == nil {
		return do("")
	}
	token, err := c.Token(ctx, "")
	if err != nil {
		return fmt.Errorf("get the token: %w", err)
	}
	for range maxRenewals {
		if err = do(token); !refused(err) {
			return err
		}
		renewed, renewErr := c.renew(ctx, token)
		switch {
		case errors.Is(renewErr, ErrSessionEnded):
			return fmt.Errorf("%w: %w", renewErr, err)
		case renewErr != nil:
			return fmt.Errorf("renew the token: %w", renewErr)
		}
		token = renewed
	}
	if err = do(token); refused(err) {
		return fmt.Errorf("%w: %w", ErrSessionEnded, err)
	}
	return err
}

// CodeOf returns the code of an *Error, or "" for any other error.
func CodeOf(err error) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// refused reports whether the server has refused the token.
func refused(err error) bool {
	var closed *CloseError
	return CodeOf(err) == codeUnauthenticated || errors.As(err, &closed) && closed.Code == closeForbidden
}

// renew returns a token other than the refused one. Concurrent calls for the same token renew it once.
func (c *Client) renew(ctx context.Context, token string) (string, error) {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	if c.renewed != "" && c.replaced == token {
		return c.renewed, nil
	}
	renewed, err := c.Token(ctx, token)
	if err == nil && renewed == token {
		err = ErrSessionEnded
	}
	if err != nil {
		return "", err
	}
	c.replaced, c.renewed = token, renewed
	return renewed, nil
}

// defaultHTTP is shared by all clients without an HTTP client of their own.
var defaultHTTP = &http.Client{Timeout: Timeout}

func (c *Client) http() *http.Client {
	if c.HTTP == nil {
		return defaultHTTP
	}
	return c.HTTP
}

func (c *Client) post(ctx context.Context, token, query string, variables map[string]any, data any) error {
	body, err := json.Marshal(operation{query, variables})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http().Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the response: %w", err)
	case len(raw) > maxResponse:
		return fmt.Errorf("read the response: it is larger than %d MiB", maxResponse>>20)
	}
	if data == nil {
		data = &struct{}{}
	}
	decoded := struct {
		Data   any
		Errors []responseError
	}{Data: data}
	err = json.Unmarshal(raw, &decoded)
	var otherType *json.UnmarshalTypeError
	switch {
	case len(decoded.Errors) > 0:
		return withRetryAfter(decoded.Errors[0].asError(), response.Header)
	case errors.As(err, &otherType) && response.StatusCode == http.StatusOK: // data has other types than the response
		return fmt.Errorf("read the response: %w", err)
	case err != nil || response.StatusCode != http.StatusOK:
		return notFromAPI(response)
	}
	return nil
}

// operation is the request of an operation, over HTTP and in a socket.
type operation struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

// notFromAPI returns the error for a response that something else than the API has sent.
func notFromAPI(response *http.Response) *Error {
	return withRetryAfter(&Error{Code: codeHTTP + strconv.Itoa(response.StatusCode), Message: "the response is not from a GraphQL API"}, response.Header)
}

// withRetryAfter sets RetryAfter from the header Retry-After if the error does not have it.
func withRetryAfter(e *Error, header http.Header) *Error {
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && e.RetryAfter == 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

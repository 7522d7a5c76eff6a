// Package tideline is a client of the Tideline API. A [Client] runs operations. A [Timeline] holds a user's
// home timeline: it reads it, follows it live, and resumes after an interruption.
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
	// maxRenewals is how often a refused token is renewed. A token that another call has renewed a
	// while ago may have expired too.
	maxRenewals = 2
	// maxAnswer bounds an answer or a message, in bytes.
	maxAnswer = 64 << 20
)

// Client calls one API as one user. It is safe for concurrent use, and must not be copied.
type Client struct {
	// URL is the address of the API, such as https://example.org/graphql.
	URL string
	// Token returns the user's current token. If refused is not empty, the server has refused that token,
	// and Token returns a new one. It returns ErrSessionEnded if no new token can be had; any other error
	// means that a later call may succeed. Renewals are called one at a time, other calls concurrently. If
	// Token is nil, nobody is signed in.
	Token func(ctx context.Context, refused string) (string, error)
	// HTTP makes the requests and opens the sockets. Defaults to a client with Timeout.
	HTTP *http.Client

	renewing sync.Mutex
	renewed  string // the last renewed token
}

// ErrSessionEnded means that no valid token can be had, or that the server refuses a renewed one too. The
// refusal of the server is wrapped with it.
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
	codeInvalid         = "GRAPHQL_VALIDATION_FAILED"
	codeBadInput        = "BAD_USER_INPUT"
	codeLimited         = "RATE_LIMITED"
	codeTimeout         = "TIMEOUT"
	codeInternal        = "INTERNAL"
	codeHTTP            = "HTTP_" // followed by the status
)

// Error is the first error of an answer. docs/errors.md describes its fields.
type Error struct {
	// Code says what to do. It is "HTTP_" and the status if the answer does not come from the
	// API, but from a proxy, for example.
	Code string
	// Reason says what was wrong. It is "" if the code says everything.
	Reason string
	// Message is an English text for developers.
	Message string
	// Field is the argument or the input's field that is at fault. Limit is the name of the exceeded limit.
	// Both may be "". Allowed is the limit, and Given the value that was sent.
	Field, Limit   string
	Allowed, Given float64
	// RetryAfter is the time after which the same call is allowed. 0: unknown.
	RetryAfter time.Duration
	// RequestID identifies the error in the server's log if the code is INTERNAL.
	RequestID string
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// answered is an error of an answer in JSON.
type answered struct {
	Message    string
	Extensions struct {
		Code, Reason, Field, Limit, RequestID string
		Allowed, Given, RetryAfter            float64
	}
}

func (a answered) refusal() *Error {
	x := a.Extensions
	return &Error{
		Code: x.Code, Reason: x.Reason, Message: a.Message, Field: x.Field, Limit: x.Limit, Allowed: x.Allowed, Given: x.Given,
		RetryAfter: time.Duration(x.RetryAfter * float64(time.Second)), RequestID: x.RequestID,
	}
}

// Query runs a query or a mutation and decodes its data into data, which may be nil. If the token is refused,
// it renews the token and repeats the operation. Errors: an *Error, also for an answer that has both data and
// errors; ErrSessionEnded; an error of the context, of Token or of the network, after which a mutation may
// have been done. data may be decoded despite an *Error.
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
	if no := (*Error)(nil); errors.As(err, &no) {
		return no.Code
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
	if c.renewed != "" && c.renewed != token {
		return c.renewed, nil
	}
	renewed, err := c.Token(ctx, token)
	if err == nil && renewed == token {
		err = ErrSessionEnded
	}
	if err != nil {
		return "", err
	}
	c.renewed = renewed
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
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if data == nil {
		data = &struct{}{}
	}
	answer := struct {
		Data   any
		Errors []answered
	}{Data: data}
	err = json.Unmarshal(raw, &answer)
	var unlike *json.UnmarshalTypeError
	switch {
	case len(answer.Errors) > 0:
		return withRetryAfter(answer.Errors[0].refusal(), response.Header)
	case errors.As(err, &unlike) && response.StatusCode == http.StatusOK:
		return fmt.Errorf("read the answer: %w", err)
	case err != nil || response.StatusCode != http.StatusOK:
		return notOfTheAPI(response)
	}
	return nil
}

// operation is the request of an operation, over HTTP and in a socket.
type operation struct {
	Query     string         `json:"query"`
	Variables map[string]any `json:"variables,omitempty"`
}

func notOfTheAPI(response *http.Response) *Error {
	return withRetryAfter(&Error{Code: codeHTTP + strconv.Itoa(response.StatusCode), Message: "the answer is none of a GraphQL API"}, response.Header)
}

func withRetryAfter(e *Error, header http.Header) *Error {
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil && e.RetryAfter == 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

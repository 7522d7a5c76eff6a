// Package tideline is a client of a Tideline's API. A [Client] runs operations, a
// [Timeline] holds a user's timeline: it reads it, follows it live, and resumes.
//
// It needs a WebSocket library and nothing of the server. Calls obey their context.
// Nothing is logged: an error comes back to the caller.
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
	// Timeout bounds a request of a Client without an HTTP client of its own, and the
	// beginning of every subscription. It is longer than a server takes by itself.
	Timeout = 35 * time.Second
	// maxRenewals is how many tokens are asked for in the place of a refused one: what another
	// call was given a while ago may be over, too.
	maxRenewals = 2
	// maxAnswer bounds an answer and a message, in bytes.
	maxAnswer = 64 << 20
)

// Client calls one API as one user. It may be used concurrently, and not be copied.
type Client struct {
	// URL is that of the API, as https://example.org/graphql.
	URL string
	// Token returns the present token of the user. Asked with a token that the server
	// refused, it returns a new one, or an error that is ErrSessionEnded when there is
	// none any more; another error means that this may work later. It is asked for one
	// renewal at a time, else concurrently. Nil: nobody is signed in.
	Token func(ctx context.Context, refused string) (string, error)
	// HTTP makes the requests and opens the sockets. Nil: one with Timeout.
	HTTP *http.Client

	renewing sync.Mutex
	renewed  string // the last token that came for a refused one
}

// ErrSessionEnded means that there is no token any more with which to go on, or that
// the server refuses a new one as well. What it refused by is beside it.
var ErrSessionEnded = errors.New("the session has ended")

// Fixed is the Token of a Client that has one token: when it is refused, the session
// has ended.
func Fixed(token string) func(context.Context, string) (string, error) {
	return func(_ context.Context, refused string) (string, error) {
		if refused == token {
			return "", ErrSessionEnded
		}
		return token, nil
	}
}

// The codes of errors upon which this package acts; docs/errors.md has all.
const (
	codeUnauthenticated = "UNAUTHENTICATED"
	codeInvalid         = "GRAPHQL_VALIDATION_FAILED"
	codeBadInput        = "BAD_USER_INPUT"
	codeLimited         = "RATE_LIMITED"
	codeTimeout         = "TIMEOUT"
	codeInternal        = "INTERNAL"
	codeHTTP            = "HTTP_" // and the status
)

// Error is a refusal: the first error of an answer, as docs/errors.md has them.
type Error struct {
	// Code says what to do. It is "HTTP_" and the status where the answer is none of the
	// API, as that of a proxy.
	Code string
	// Reason says what was wrong, "" where the code says it all.
	Reason string
	// Message is English, for developers.
	Message string
	// Field is the argument or the input's field that is at fault, Limit the name of the
	// bound that was met, "" where there is none. Allowed is the bound, Given what was sent.
	Field, Limit   string
	Allowed, Given float64
	// RetryAfter is the time after which the same call is taken; 0: not said.
	RetryAfter time.Duration
	// RequestID is what an operator finds in the log, with the code INTERNAL.
	RequestID string
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// answered is an error of an answer, as it comes.
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

// Query runs a query or a mutation and decodes its data, which may be nil. A token that
// is refused is renewed, and the operation repeated. Errors: an *Error, also for
// an answer that has data beside its errors, which are then decoded or not;
// ErrSessionEnded; what the context, Token, or the network says, after which a mutation may
// have been done.
func (c *Client) Query(ctx context.Context, query string, variables map[string]any, data any) error {
	return c.authorized(ctx, func(token string) error { return c.post(ctx, token, query, variables, data) })
}

// authorized does something with the present token, and again with another one when that
// is refused.
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

// CodeOf returns the code of an *Error, "" of another one.
func CodeOf(err error) string {
	if no := (*Error)(nil); errors.As(err, &no) {
		return no.Code
	}
	return ""
}

// refused reports whether the server does not take the token.
func refused(err error) bool {
	var closed *CloseError
	return CodeOf(err) == codeUnauthenticated || errors.As(err, &closed) && closed.Code == closeForbidden
}

// renew returns another token. Of those who ask at once for the same, one renews it.
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

// defaultHTTP is of all clients without one.
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

// operation is what is asked, over HTTP and in a socket.
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

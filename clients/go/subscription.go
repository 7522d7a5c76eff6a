package tideline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// Close codes that this package acts on. docs/live.md lists all codes.
const (
	closeBroken           = 1006
	closeTooLarge         = 1009
	closeRestart          = 1012
	closeBadMessage       = 4400
	closeTooEarly         = 4401
	closeForbidden        = 4403
	closeBadSubprotocol   = 4406
	closeDuplicateID      = 4409
	closeTwiceInitialised = 4429
)

// CloseError says how a connection ended.
type CloseError struct {
	// Code is a close code of docs/live.md, or 1006 if the connection broke.
	Code   int
	Reason string
}

// Error returns the code and the reason.
func (e *CloseError) Error() string {
	return fmt.Sprintf("the connection was closed: %d %s", e.Code, e.Reason)
}

// Subscription is one operation on its own connection. Close is safe for concurrent use. Next
// must not be called concurrently.
type Subscription struct {
	conn    *websocket.Conn
	frame   bytes.Buffer
	silence *time.Timer // closes conn; runs while a message is expected
}

// message is a message of the protocol, in either direction.
type message struct {
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

const (
	subprotocol = "graphql-transport-ws"
	// nextBegins is how the server's results begin. Most messages are results. They are recognised by this
	// prefix, and so need not be parsed twice.
	nextBegins = `{"id":"1","type":"next","payload":`
	farewell   = time.Second // how long Close waits for the server
	// maxSilence is how long a connection may be silent. The server pings every 20 seconds.
	maxSilence = 50 * time.Second
)

// Subscribe opens a connection and subscribes. If the token is refused, it is renewed. ctx and Timeout apply
// only to the start; Close ends a subscription. Success does not mean that the server has started the
// subscription: only the first result shows that. Errors: the errors of Query, and a *CloseError.
func (c *Client) Subscribe(ctx context.Context, query string, variables map[string]any) (*Subscription, error) {
	var s *Subscription
	err := c.authorized(ctx, func(token string) (err error) {
		s, err = c.connect(ctx, token, query, variables)
		return err
	})
	return s, err
}

func (c *Client) connect(ctx context.Context, token, query string, variables map[string]any) (*Subscription, error) {
	beginning, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, response, err := websocket.Dial(beginning, c.URL, &websocket.DialOptions{HTTPClient: c.http(), Subprotocols: []string{subprotocol}})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && response != nil:
		return nil, handshakeError(response)
	case err != nil:
		return nil, err
	}
	conn.SetReadLimit(maxResponse)
	s := &Subscription{conn: conn, silence: time.AfterFunc(maxSilence, func() { _ = conn.CloseNow() })}
	if err := s.begin(beginning, token, operation{query, variables}); err != nil {
		_ = conn.CloseNow() // the error says why
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return s, nil
}

// handshakeError returns why the handshake failed. The library keeps the beginning of the response's body.
func handshakeError(response *http.Response) error {
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	var decoded struct{ Errors []responseError }
	if err == nil && json.Unmarshal(raw, &decoded) == nil && len(decoded.Errors) > 0 {
		return withRetryAfter(decoded.Errors[0].asError(), response.Header)
	}
	return notFromAPI(response)
}

// begin authenticates, waits for the acknowledgement, and subscribes.
func (s *Subscription) begin(ctx context.Context, token string, what operation) error {
	who := map[string]string{}
	if token != "" {
		who["Authorization"] = "Bearer " + token
	}
	if err := s.send(ctx, "", "connection_init", who); err != nil {
		return err
	}
	for {
		m, err := s.read(ctx)
		if err != nil {
			return err
		}
		switch m.Type {
		case "connection_ack":
			return s.send(ctx, "1", "subscribe", what)
		case "ping":
			err = s.send(ctx, "", "pong", nil)
		default:
			err = fmt.Errorf("the server answered connection_init with %q", m.Type)
		}
		if err != nil {
			return err
		}
	}
}

func (s *Subscription) send(ctx context.Context, id, kind string, payload any) error {
	m := message{ID: id, Type: kind}
	if payload != nil {
		raw, err := json.Marshal(payload)
		if err != nil {
			return err
		}
		m.Payload = raw
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return closeError(s.conn.Write(ctx, websocket.MessageText, raw))
}

// receive reads a message into s.frame. If none arrives within maxSilence, it closes the connection.
func (s *Subscription) receive(ctx context.Context) error {
	s.silence.Reset(maxSilence)
	_, r, err := s.conn.Reader(ctx)
	if err == nil {
		s.frame.Reset()
		_, err = s.frame.ReadFrom(r)
	}
	if expired := !s.silence.Stop(); expired && err != nil {
		return &CloseError{closeBroken, "the server was silent for " + maxSilence.String()}
	}
	return closeError(err)
}

func (s *Subscription) read(ctx context.Context) (m message, err error) {
	if err := s.receive(ctx); err != nil {
		return m, err
	}
	if err := json.Unmarshal(s.frame.Bytes(), &m); err != nil {
		return m, fmt.Errorf("read a message: %w", err)
	}
	return m, nil
}

func closeError(err error) error {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		return &CloseError{int(closed.Code), closed.Reason}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &CloseError{closeBroken, "the connection ended without a close frame"}
	}
	return err
}

// Next waits for the next result and returns its JSON unchanged: an object with data or errors. It also
// answers the server's pings. The result is valid until the next call of Next. If ctx ends, or the server
// sends nothing for 50 seconds, the connection is closed.
//
// After an error, call Close. Errors: io.EOF if the server completed the subscription, an *Error if the
// server refused it, a *CloseError, network errors, and errors of decoding: a message that is not JSON, or a
// refusal without a readable error.
// Cost: for a result, no allocations except the WebSocket library's.
func (s *Subscription) Next(ctx context.Context) ([]byte, error) {
	for {
		if err := s.receive(ctx); err != nil {
			return nil, err
		}
		frame := bytes.TrimSpace(s.frame.Bytes())
		if payload, ok := bytes.CutPrefix(frame, []byte(nextBegins)); ok {
			return bytes.TrimSuffix(payload, []byte("}")), nil
		}
		var m message
		if err := json.Unmarshal(frame, &m); err != nil {
			return nil, fmt.Errorf("read a message: %w", err)
		}
		switch m.Type {
		case "next":
			return m.Payload, nil
		case "ping":
			if err := s.send(ctx, "", "pong", nil); err != nil {
				return nil, err
			}
		case "complete":
			return nil, io.EOF
		case "error":
			var errs []responseError
			if err := json.Unmarshal(m.Payload, &errs); err != nil || len(errs) == 0 {
				return nil, fmt.Errorf("the subscription was refused: %s", m.Payload)
			}
			return nil, errs[0].asError()
		}
	}
}

// Close ends the subscription and its connection. It waits at most a second for the server to close too.
func (s *Subscription) Close() error {
	closed := make(chan error, 1)
	go func() { closed <- s.conn.Close(websocket.StatusNormalClosure, "") }() // takes at most ten seconds
	select {
	case err := <-closed:
		return err
	case <-time.After(farewell):
		return nil
	}
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/internal/trace"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

// Server-sent events serve clients without WebSocket, according to GraphQL over SSE in "distinct connections
// mode". Each operation is a separate request. The answer is a stream of events: "next" for each result, and
// "complete" at the end. If a stream ends without "complete", the client requests it again.

const typeEvents = "text/event-stream"

// wantsEvents reports whether a request accepts an event stream.
func wantsEvents(r *http.Request) bool {
	for _, item := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if name, params, err := mime.ParseMediaType(strings.TrimSpace(item)); err == nil && name == typeEvents {
			return incoming.Quality(params["q"]) > 0
		}
	}
	return false
}

// eventStream writes an answer as events. A client that does not take an event within the timeout loses its
// stream. While an event is being written, the next ones stay at their source, which is bounded.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (s *eventStream) write(text []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *eventStream) next(response exec.Response) error {
	text, err := response.AppendJSON([]byte("event: next\ndata: "))
	if err != nil {
		return err
	}
	return s.write(append(text, "\n\n"...))
}

// retry tells the client how long to wait before it requests the stream again.
func (s *eventStream) retry(wait time.Duration) error {
	return s.write(fmt.Appendf(nil, "retry: %d\n\n", wait.Milliseconds()))
}

func (s *eventStream) complete() error { return s.write([]byte("event: complete\ndata:\n\n")) }

// stream is an open event stream.
type stream struct {
	cancel context.CancelFunc
	away   chan time.Duration // how long the client must wait; has room for one value
}

// activity implements client.
func (s *stream) activity() int { return subscribed }

// leave implements client. A query or mutation is answered first, and ends its stream by itself.
func (s *stream) leave(wait time.Duration) {
	select {
	case s.away <- wait:
	default: // an earlier call has told it
	}
}

// reserveStream is reserve for a stream, which is sent away when the process stops.
func (s *sockets) reserveStream(open *stream) (ok bool) {
	if !s.reserve() {
		return false
	}
	s.mu.Lock()
	s.streams[open] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		open.leave(0)
	}
	return true
}

// releaseStream reverts reserveStream.
func (s *sockets) releaseStream(open *stream) {
	s.mu.Lock()
	delete(s.streams, open)
	s.mu.Unlock()
	s.release()
}

// stream answers a request with events: the results of the operation, or errs if it could not be prepared.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, begun time.Time, v session.Viewer, expires time.Time, operation *exec.Operation, errs gqlerror.List) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	open := &stream{cancel: cancel, away: make(chan time.Duration, 1)}
	if !h.sockets.reserveStream(open) {
		unavailable(w, "This server takes no more connections.")
		return
	}
	defer h.sockets.releaseStream(open)
	if !expires.IsZero() {
		defer time.AfterFunc(time.Until(expires), cancel).Stop()
	}
	defer h.api.config.Watch(v, cancel)()

	s := &eventStream{w, http.NewResponseController(w), h.api.config.WriteTimeout}
	_ = s.control.SetReadDeadline(time.Time{}) // a writer without this method keeps the server's deadline
	w.Header().Set("Content-Type", typeEvents+"; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // tells proxies to pass each event on at once
	switch {
	case len(errs) > 0:
	case operation.Kind() != ast.Subscription:
		if s.next(h.api.execute(ctx, begun, v, limit.AddressOf(r.RemoteAddr), operation)) == nil {
			_ = s.complete()
		}
		return
	default:
		if errs = h.admit(ctx, w, r, v); len(errs) > 0 {
			break
		}
		ctx, dirty := graph.WithViewer(ctx, v), make(chan struct{}, 1)
		waiting, cancel := context.WithTimeout(ctx, h.api.answerWithin)
		defer cancel()
		var subscription *exec.Subscription
		subscription, errs = h.api.subscribe(ctx, waiting, v, limit.AddressOf(r.RemoteAddr), operation, func() {
			select {
			case dirty <- struct{}{}:
			default: // an earlier signal is still unread
			}
		})
		if len(errs) == 0 {
			h.forward(ctx, s, r, subscription, dirty, open.away)
			return
		}
		if codeOf(errs) == codeInternal { // an error event would be final
			unavailable(w, "The stream cannot begin at the moment.")
			return
		}
	}
	if seconds, ok := retryAfter(errs); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	if s.next(exec.Response{Errors: errs}) == nil {
		_ = s.complete()
	}
}

// unavailable tells a client to retry later.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// admit counts the stream of a subscription until ctx ends.
func (h *Handler) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, v session.Viewer) gqlerror.List {
	if refusal := h.api.config.Limits.Stream(ctx, clientOf(v, limit.AddressOf(r.RemoteAddr))); refusal != nil {
		return refused(refusal)
	}
	if r.ProtoMajor == 1 && limit.FreeSlot(ctx) {
		w.Header().Set("Connection", "close") // the connection has no slot for another request after the stream
	}
	return nil
}

// forward writes the responses of a subscription until it ends. It reads the subscription each
// time dirty signals that there may be more. It also writes a comment at intervals, with which
// both sides detect a dead peer.
func (h *Handler) forward(ctx context.Context, s *eventStream, r *http.Request, subscription *exec.Subscription, dirty <-chan struct{}, away <-chan time.Duration) {
	pings := time.NewTicker(h.api.config.PingInterval)
	defer pings.Stop()
	ctx = trace.Joinable(ctx)
	err := s.write([]byte(":\n\n")) // the client is connected
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case wait := <-away:
			_ = s.retry(wait) // an error means that the client has left already
			return
		case <-pings.C:
			err = s.write([]byte(":\n\n"))
			continue
		case <-dirty:
		}
		for response, ok := subscription.Next(ctx); ok && err == nil; response, ok = subscription.Next(ctx) {
			stamp(ctx, response.Errors)
			_, span := trace.Begin(ctx, "write event")
			err = s.next(response)
			span.End(err)
			trace.Join(ctx, nil)
		}
		if errs := subscription.Refused(); err == nil && errs != nil {
			err = s.next(exec.Response{Errors: errs})
		}
		if err == nil && subscription.Ended() {
			// If the session ended, the stream is not complete. The client requests it again and is told why.
			if _, _, gone := h.viewer(r); gone == nil && ctx.Err() == nil && !subscription.Interrupted() {
				_ = s.complete()
			}
			return
		}
	}
}

package server

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/account"
	"tideline/graph"
	"tideline/graph/exec"
)

// Server-sent events, for clients without WebSocket: GraphQL over SSE in its
// mode of distinct connections. Each operation is a request of its own that is
// answered by events: "next" with a result, as many as there are, and at last
// "complete". A stream that ends without is to be asked for again.

const typeEvents = "text/event-stream"

// wantsEvents says whether a request asks to be answered by events.
func wantsEvents(r *http.Request) bool {
	for _, item := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if name, params, err := mime.ParseMediaType(strings.TrimSpace(item)); err == nil && name == typeEvents {
			return quality(params["q"]) > 0
		}
	}
	return false
}

// eventStream is an answer under way. A client that takes no event within the
// deadline loses its stream; what waits for it meanwhile is held back at the
// source, which has bounds of its own.
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

func (s *eventStream) complete() error { return s.write([]byte("event: complete\ndata:\n\n")) }

// stream answers an operation, or the errors that kept it from being one, by
// events.
func (h *graphqlHandler) stream(w http.ResponseWriter, r *http.Request, begun time.Time, v account.Viewer, operation *exec.Operation, errs gqlerror.List) {
	if !h.sockets.reserve() {
		unavailable(w, "This server takes no more connections.")
		return
	}
	defer h.sockets.release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer h.sockets.sessions.hold(v.Session, cancel)()

	s := &eventStream{w, http.NewResponseController(w), h.sockets.config.WriteTimeout}
	_ = s.control.SetReadDeadline(time.Time{}) // a hint that not every writer takes
	w.Header().Set("Content-Type", typeEvents+"; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // proxies, too, pass events on as they come
	switch {
	case len(errs) > 0:
	case operation.Kind() != ast.Subscription:
		if s.next(h.api.execute(ctx, begun, v, operation)) == nil {
			_ = s.complete()
		}
		return
	default:
		if errs = h.admit(ctx, w, r, v); len(errs) > 0 {
			break
		}
		ctx, news := graph.WithViewer(withSubscriber(ctx, addressOf(r.RemoteAddr)), v), make(chan struct{}, 1)
		var subscription *exec.Subscription
		subscription, errs = h.api.subscribe(ctx, v, operation, func() {
			select {
			case news <- struct{}{}:
			default: // it has yet to look
			}
		})
		if len(errs) == 0 {
			h.forward(ctx, s, r, subscription, news)
			return
		}
		if codeOf(errs) == codeInternal { // an answer by events would be final
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

// unavailable tells a client to come back.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// admit counts the stream of a subscription until ctx ends.
func (h *graphqlHandler) admit(ctx context.Context, w http.ResponseWriter, r *http.Request, v account.Viewer) gqlerror.List {
	if err := h.api.quotas.stream(ctx, v, addressOf(r.RemoteAddr)); err != nil {
		return gqlerror.List{err}
	}
	if c := connOf(ctx); c != nil && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // after the stream, which takes no place at the door
		c.leave()
	}
	return nil
}

// forward passes on what a subscription brings, and now and then a comment, by
// which both sides find out whether the other is still there.
func (h *graphqlHandler) forward(ctx context.Context, s *eventStream, r *http.Request, subscription *exec.Subscription, news <-chan struct{}) {
	pulse := time.NewTicker(h.sockets.config.PingInterval)
	defer pulse.Stop()
	err := s.write([]byte(":\n\n")) // the client is connected
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-h.sockets.stopping:
			return
		case <-pulse.C:
			err = s.write([]byte(":\n\n"))
			continue
		case <-news:
		}
		for response, ok := subscription.Next(ctx); ok && err == nil; response, ok = subscription.Next(ctx) {
			stamp(ctx, response.Errors)
			err = s.next(response)
		}
		if err == nil && subscription.Ended() {
			// A stream that ended with its session is not complete: the next
			// attempt is told why.
			if _, gone := h.viewer(r); gone == nil && ctx.Err() == nil && !subscription.Interrupted() {
				_ = s.complete()
			}
			return
		}
	}
}

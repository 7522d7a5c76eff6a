package transport

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/session"
	"tideline/graph/exec"
	"tideline/internal/clock"
	"tideline/internal/trace"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

// answer serves a request according to GraphQL over HTTP, and passes WebSocket handshakes to upgrade.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		h.upgrade(w, r)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Add("Vary", "Accept")
	mediaType, ok := incoming.Negotiate(r.Header.Values("Accept"))
	if !ok {
		mediaType = incoming.TypeJSON
	}
	if !ok && !wantsEvents(r) {
		refuse(w, incoming.TypeJSON, http.StatusNotAcceptable, "Accept %s, %s or %s.", incoming.TypeResponse, incoming.TypeJSON, typeEvents)
		return
	}

	var request exec.Request
	var err error
	release := func() {}
	switch r.Method {
	case http.MethodGet:
		request, err = incoming.ParseParams(r.URL.RawQuery)
	case http.MethodPost:
		if !incoming.IsJSON(r.Header.Get("Content-Type")) {
			refuse(w, mediaType, http.StatusUnsupportedMediaType, "Send the request as %s in UTF-8.", incoming.TypeJSON)
			return
		}
		request, release, err = h.api.readBody(w, r)
		defer release() // the request refers to the body until it is answered
	default:
		header.Set("Allow", "GET, POST")
		refuse(w, mediaType, http.StatusMethodNotAllowed, "Use POST, or GET for a query.")
		return
	}
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		leaveUnread(w, r)
		refuse(w, mediaType, http.StatusRequestEntityTooLarge, "The request is larger than %d bytes.", large.Limit)
		return
	}
	if errors.Is(err, limit.ErrBusy) {
		leaveUnread(w, r)
		respondAs(w, mediaType, http.StatusServiceUnavailable, exec.Response{Errors: refused(limit.Busy)})
		return
	}
	if err != nil {
		refuse(w, mediaType, http.StatusBadRequest, "The request cannot be read: %v.", err)
		return
	}
	h.serve(w, r, mediaType, request, release)
}

// leaveUnread prepares an answer that does not wait for the rest of the request's body. On HTTP/1 the connection
// closes afterwards. [Linger] first discards the rest of the body, within bounds, so the client can read the answer.
func leaveUnread(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 { // HTTP/2 answers at once anyway, and shares the connection with other requests
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).EnableFullDuplex() // if the writer does not support it, the answer waits for up to 256 KB
	}
}

// refusalPause delays the answer to a request that the rates refuse. It slows down a client that repeats such a
// request at once: without it 16 connections were refused 1,300 times a second, and the 99th percentile of others'
// pages was 14 to 25 ms instead of 10 to 12 (BenchmarkBystanders; 5 ms without that client).
const refusalPause = 100 * time.Millisecond

// delay waits for refusalPause if the rates have refused the request.
func delay(ctx context.Context, errs gqlerror.List) {
	if codeOf(errs) == codeRateLimited {
		_ = clock.Sleep(ctx, refusalPause)
	}
}

// serve answers a request that was read. It releases the body of a subscription early.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, mediaType string, request exec.Request, release func()) {
	ctx, begun := trace.WithCaller(r.Context(), r.Header), time.Now()
	viewer, expires, err := h.viewer(r)
	if err != nil {
		errs := h.api.unidentified(ctx, "authenticate", err)
		switch {
		case isUnauthenticated(err):
			w.Header().Set("WWW-Authenticate", "Bearer")
		case wantsEvents(r) && codeOf(errs) == codeInternal:
			unavailable(w, "The session cannot be checked at the moment.")
			return
		}
		release()
		delay(ctx, errs)
		respond(w, mediaType, exec.Response{Errors: errs})
		return
	}
	operation, errs := h.api.prepare(ctx, viewer, limit.AddressOf(r.RemoteAddr), request)
	if len(errs) == 0 && operation.Kind() == ast.Subscription {
		release() // a subscription lasts, and keeps little of the body
	}
	if len(errs) > 0 {
		release()
		delay(ctx, errs)
	}
	if wantsEvents(r) && (len(errs) > 0 || operation.Kind() != ast.Mutation || r.Method == http.MethodPost) {
		h.stream(w, r, begun, viewer, expires, operation, errs)
		return
	}
	if len(errs) > 0 {
		respond(w, mediaType, exec.Response{Errors: errs})
		return
	}
	switch kind := operation.Kind(); {
	case kind == ast.Subscription:
		refuse(w, mediaType, http.StatusBadRequest, "Subscriptions are served over WebSocket, with the subprotocol %s, or as %s.", subprotocol, typeEvents)
	case kind == ast.Mutation && r.Method == http.MethodGet:
		w.Header().Set("Allow", "POST")
		refuse(w, mediaType, http.StatusMethodNotAllowed, "Use POST for a mutation.")
	default:
		response := h.api.execute(ctx, begun, viewer, limit.AddressOf(r.RemoteAddr), operation)
		if r.Method == http.MethodGet && len(r.Header.Values("Authorization")) == 0 && len(response.Errors) == 0 {
			writeSharedAnswer(w, r, mediaType, response)
			return
		}
		respond(w, mediaType, response)
	}
}

// viewer returns who makes the request, and when the session expires. Errors are as in api.identify.
func (h *Handler) viewer(r *http.Request) (session.Viewer, time.Time, error) {
	token, ok := incoming.Credential(r.Header)
	if !ok {
		return session.Viewer{}, time.Time{}, errUnauthenticated
	}
	return h.api.identify(r.Context(), token, limit.AddressOf(r.RemoteAddr))
}

// upgrade accepts a WebSocket if the address does not have too many open.
func (h *Handler) upgrade(w http.ResponseWriter, r *http.Request) {
	if refusal := h.api.config.Limits.MarkSocket(r.Context(), limit.AddressOf(r.RemoteAddr)); refusal != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, refusal.Message, http.StatusTooManyRequests)
		return
	}
	h.sockets.accept(w, r)
}

// respond writes a GraphQL response with the status that its media type requires: 200 with data. Without data
// it is the status of statusOf; as application/json it is 200, except 401, 429 and 503, on which clients and
// proxies act.
func respond(w http.ResponseWriter, mediaType string, response exec.Response) {
	status := http.StatusOK
	if response.Data == nil {
		status = statusOf(response.Errors)
		if mediaType == incoming.TypeJSON && status != http.StatusUnauthorized && status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
			status = http.StatusOK
		}
	}
	respondAs(w, mediaType, status, response)
}

// respondAs writes a GraphQL response with the status.
func respondAs(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	if seconds, ok := retryAfter(response.Errors); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	writeAnswer(w, mediaType, status, response)
}

// statusOf returns the HTTP status of a response without data.
func statusOf(errs gqlerror.List) int {
	switch codeOf(errs) {
	case codeUnauthenticated:
		return http.StatusUnauthorized
	case codeRateLimited:
		return http.StatusTooManyRequests
	case codeUnavailable:
		return http.StatusServiceUnavailable
	case codeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

// refuse answers with an error a request that this handler does not execute.
func refuse(w http.ResponseWriter, mediaType string, status int, format string, args ...any) {
	writeAnswer(w, mediaType, status, exec.Response{Errors: requestError(codeBadInput, format, args...)})
}

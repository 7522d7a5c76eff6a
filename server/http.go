package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/account"
	"tideline/graph/exec"
)

// graphqlHandler serves one path as GraphQL over HTTP says, and hands WebSocket
// handshakes on. It sets no cookie and reads none, and takes bodies in JSON
// only, so that another site's page can make no request in a user's name.
type graphqlHandler struct {
	api     *api
	sockets *sockets
}

func (h *graphqlHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		h.upgrade(w, r)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Add("Vary", "Accept")
	mediaType, ok := negotiate(r.Header.Values("Accept"))
	if !ok {
		mediaType = typeJSON
	}
	if !ok && !wantsEvents(r) {
		refuse(w, typeJSON, http.StatusNotAcceptable, "Accept %s, %s or %s.", typeResponse, typeJSON, typeEvents)
		return
	}

	var request exec.Request
	var err error
	release := func() {}
	switch r.Method {
	case http.MethodGet:
		request, err = parseParams(r.URL.RawQuery)
	case http.MethodPost:
		if !isJSON(r.Header.Get("Content-Type")) {
			refuse(w, mediaType, http.StatusUnsupportedMediaType, "Send the request as %s in UTF-8.", typeJSON)
			return
		}
		request, release, err = h.read(w, r)
		defer release() // what was parsed lives as long
	default:
		header.Set("Allow", "GET, POST")
		refuse(w, mediaType, http.StatusMethodNotAllowed, "Use POST, or GET for a query.")
		return
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		refuse(w, mediaType, http.StatusRequestEntityTooLarge, "The request is larger than %d bytes.", tooLarge.Limit)
		return
	}
	if errors.Is(err, errBusy) {
		respondAs(w, mediaType, http.StatusServiceUnavailable, exec.Response{Errors: gqlerror.List{tooMany(1, "The server is busy.")}})
		return
	}
	if err != nil {
		refuse(w, mediaType, http.StatusBadRequest, "The request cannot be read: %v.", err)
		return
	}
	h.serve(w, r, mediaType, request, release)
}

func (h *graphqlHandler) serve(w http.ResponseWriter, r *http.Request, mediaType string, request exec.Request, release func()) {
	ctx, begun := r.Context(), time.Now()
	viewer, err := h.viewer(r)
	if errors.Is(err, errForbidden) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		respond(w, mediaType, exec.Response{Errors: refusalOf(codeUnauthenticated, "The session has ended. Log in again.")})
		return
	}
	if err != nil {
		errs := h.api.internal(ctx, "authenticate", err)
		if wantsEvents(r) {
			unavailable(w, "The session cannot be checked at the moment.")
			return
		}
		respond(w, mediaType, exec.Response{Errors: errs})
		return
	}
	operation, errs := h.api.prepare(ctx, viewer, addressOf(r.RemoteAddr), request)
	if len(errs) == 0 && operation.Kind() == ast.Subscription {
		release() // it lasts, and keeps but little
	}
	if wantsEvents(r) && (len(errs) > 0 || operation.Kind() != ast.Mutation || r.Method == http.MethodPost) {
		h.stream(w, r, begun, viewer, operation, errs)
		return
	}
	if len(errs) > 0 {
		respond(w, mediaType, exec.Response{Errors: errs})
		return
	}
	switch kind := operation.Kind(); {
	case kind == ast.Subscription:
		refuse(w, mediaType, http.StatusBadRequest, "Subscriptions are served over WebSocket, with the subprotocol %s, or as %s.", transportWS.protocol, typeEvents)
	case kind == ast.Mutation && r.Method == http.MethodGet:
		w.Header().Set("Allow", "POST")
		refuse(w, mediaType, http.StatusMethodNotAllowed, "Use POST for a mutation.")
	default:
		respond(w, mediaType, h.api.execute(ctx, begun, viewer, operation))
	}
}

func (h *graphqlHandler) viewer(r *http.Request) (account.Viewer, error) {
	token, ok := bearerHeader(r.Header)
	if !ok {
		return account.Viewer{}, errForbidden
	}
	viewer, _, err := h.api.identify(r.Context(), token)
	return viewer, err
}

// upgrade admits a socket, as far as its address allows.
func (h *graphqlHandler) upgrade(w http.ResponseWriter, r *http.Request) {
	address := addressOf(r.RemoteAddr)
	if c := connOf(r.Context()); c != nil && !c.become(address, h.api.quotas.addressSockets) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("An address may have %d sockets open at once.", h.api.quotas.addressSockets.most), http.StatusTooManyRequests)
		return
	}
	h.sockets.accept(w, r)
}

// read reads the body of a request; release as of budget.read.
func (h *graphqlHandler) read(w http.ResponseWriter, r *http.Request) (request exec.Request, release func(), err error) {
	reader := http.MaxBytesReader(w, r.Body, h.api.maxBody)
	body, release, err := h.api.bodies.read(reader, int(max(min(r.ContentLength, freeBody)+1, 512)), freeBody)
	if err == nil {
		request, err = parseRequest(body)
		return request, release, err
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) || errors.Is(err, errBusy) {
		return request, release, err
	}
	return request, release, errors.New("its body ended early")
}

// respond writes a GraphQL response with the status that its media type asks
// for. Only a call that was refused for who made it, or how often, has the same
// status for both: clients and proxies act on 401 and 429.
func respond(w http.ResponseWriter, mediaType string, response exec.Response) {
	status := http.StatusOK
	if response.Data == nil {
		status = statusOf(response.Errors)
		if mediaType == typeJSON && status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			status = http.StatusOK
		}
	}
	respondAs(w, mediaType, status, response)
}

// respondAs is respond with a status of one's own.
func respondAs(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	if seconds, ok := retryAfter(response.Errors); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	write(w, mediaType, status, response)
}

func statusOf(errs gqlerror.List) int {
	switch codeOf(errs) {
	case codeUnauthenticated:
		return http.StatusUnauthorized
	case codeRateLimited:
		return http.StatusTooManyRequests
	case codeInternal:
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

func retryAfter(errs gqlerror.List) (seconds int, ok bool) {
	if len(errs) == 0 {
		return 0, false
	}
	seconds, ok = errs[0].Extensions["retryAfter"].(int)
	return seconds, ok
}

// refuse answers what is not a well-formed GraphQL request.
func refuse(w http.ResponseWriter, mediaType string, status int, format string, args ...any) {
	write(w, mediaType, status, exec.Response{Errors: refusalOf(codeBadInput, format, args...)})
}

func write(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	body, err := response.AppendJSON(nil)
	if err != nil { // Data is JSON that exec wrote: this does not happen
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has left
}

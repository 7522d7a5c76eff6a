// Package outgoing writes GraphQL responses as answers to HTTP requests.
package outgoing

import (
	"net/http"
	"strconv"

	"tideline/graph/exec"
	"tideline/server/wire"
)

// Write answers with the status. Whether anybody may keep the answer says the
// Cache-Control that is set already.
func Write(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	if body, ok := encode(w, response); ok {
		send(w, mediaType, status, body)
	}
}

// WriteToAll answers a query that nobody signed, with 200 or 304. No other answer of
// the API may be kept by a cache. A cache asks each time whether it has changed: what
// is deleted or hidden is not shown again.
func WriteToAll(w http.ResponseWriter, r *http.Request, mediaType string, response exec.Response) {
	if body, ok := encode(w, response); ok && !wire.Share(w, r, body) {
		send(w, mediaType, http.StatusOK, body)
	}
}

// encode is the body of an answer; when ok is false it has told the client that there
// is none.
func encode(w http.ResponseWriter, response exec.Response) (body []byte, ok bool) {
	body, err := response.AppendJSON(nil)
	if err != nil { // Data is JSON that exec wrote: this does not happen
		http.Error(w, "", http.StatusInternalServerError)
	}
	return body, err == nil
}

func send(w http.ResponseWriter, mediaType string, status int, body []byte) {
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has left
}

package transport

import (
	"net/http"
	"strconv"

	"tideline/graph/exec"
	"tideline/server/wire"
)

// writeAnswer answers with the status. Whether anybody may keep the answer says the
// Cache-Control that is set already.
func writeAnswer(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	if body, ok := encodeAnswer(w, response); ok {
		sendAnswer(w, mediaType, status, body)
	}
}

// writeSharedAnswer answers a query that nobody signed, with 200 or 304. No other answer of
// the API may be kept by a cache. A cache asks each time whether it has changed: what
// is deleted or hidden is not shown again.
func writeSharedAnswer(w http.ResponseWriter, r *http.Request, mediaType string, response exec.Response) {
	if body, ok := encodeAnswer(w, response); ok && !wire.Share(w, r, body) {
		sendAnswer(w, mediaType, http.StatusOK, body)
	}
}

// encodeAnswer is the body of an answer; when ok is false it has told the client that there
// is none.
func encodeAnswer(w http.ResponseWriter, response exec.Response) (body []byte, ok bool) {
	body, err := response.AppendJSON(nil)
	if err != nil { // Data is JSON that exec wrote: this does not happen
		http.Error(w, "", http.StatusInternalServerError)
	}
	return body, err == nil
}

func sendAnswer(w http.ResponseWriter, mediaType string, status int, body []byte) {
	w.Header().Set("Content-Type", mediaType+"; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body) // an error means that the client has left
}

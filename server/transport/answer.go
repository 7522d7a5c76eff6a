package transport

import (
	"net/http"
	"strconv"

	"tideline/graph/exec"
	"tideline/server/wire"
)

// writeAnswer writes an answer with the status. The caller has set its Cache-Control.
func writeAnswer(w http.ResponseWriter, mediaType string, status int, response exec.Response) {
	if body, ok := encodeAnswer(w, response); ok {
		sendAnswer(w, mediaType, status, body)
	}
}

// writeSharedAnswer answers a query without Authorization, with 200 or 304. It is the only answer of the API
// that caches may keep. A cache must ask each time whether the answer has changed, so nothing that was
// deleted or hidden is shown again.
func writeSharedAnswer(w http.ResponseWriter, r *http.Request, mediaType string, response exec.Response) {
	if body, ok := encodeAnswer(w, response); ok && !wire.Share(w, r, body) {
		sendAnswer(w, mediaType, http.StatusOK, body)
	}
}

// encodeAnswer returns the body of an answer. If ok is false, it has answered with an internal error.
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

package incoming

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"golang.org/x/sync/semaphore"

	"tideline/server/limit"
)

// ErrInflated refuses a message on a socket that is too large once it is decompressed. The rest
// of the message is not decompressed.
var ErrInflated = errors.New("the inflated message is too large")

// ReadMessage reads a message of at most most bytes, counted after decompression. budget, free, release and
// errors are as in [limit.ReadAll]; in addition it returns ErrInflated.
func ReadMessage(r io.Reader, most int, budget *semaphore.Weighted, free int) (data []byte, release func(), err error) {
	data, release, err = limit.ReadAll(io.LimitReader(r, int64(most)+1), budget, 512, free)
	if err == nil && len(data) > most {
		release()
		return nil, release, ErrInflated
	}
	return data, release, err
}

// OffersDeflate reports whether a WebSocket handshake offers to compress messages.
func OffersDeflate(h http.Header) bool {
	return strings.Contains(strings.Join(h.Values("Sec-Websocket-Extensions"), ","), "permessage-deflate")
}

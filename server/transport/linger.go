package transport

import (
	"io"
	"net/http"
	"time"
)

const (
	// netDiscards is how many bytes of an unread body net/http reads and discards by itself
	// after an answer.
	netDiscards = 256 << 10
	// lingerBytes bounds what Linger discards of one body, lingerPause how long it waits for
	// the next bytes, and ReadTimeout how long it takes in all.
	lingerBytes = 64 << 20
	lingerPause = 5 * time.Second
)

// Linger lets a client that is still sending its request read an answer that did not wait for
// the whole body: "too large", for example. If the server closed the connection at once, bytes
// that arrive later would reset it, and many clients would report the reset and never the
// answer. So Linger sends the answer, then reads and discards the rest of the body: at most
// 64 MB, with pauses of at most 5 s, for at most ReadTimeout. Next must write an answer with a
// Content-Length for the client to know where it ends.
//
// Bodies of up to 256 KB, and all of HTTP/2, need no help and pass as they are.
func Linger(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.ContentLength >= 0 && r.ContentLength <= netDiscards {
			next.ServeHTTP(w, r)
			return
		}
		body := &watchedBody{ReadCloser: r.Body}
		watched := *r // net/http looks at the body of its own request
		watched.Body = body
		next.ServeHTTP(w, &watched)
		if !body.ended {
			linger(http.NewResponseController(w), r.Body)
		}
	})
}

// linger sends what is written of the answer, and discards the rest of the body.
func linger(control *http.ResponseController, body io.Reader) {
	if control.Flush() != nil {
		return // the client has left
	}
	end := time.Now().Add(ReadTimeout)
	buffer := make([]byte, 32<<10)
	for left := lingerBytes; left > 0; {
		pause := time.Now().Add(lingerPause)
		if pause.After(end) {
			pause = end
		}
		if control.SetReadDeadline(pause) != nil {
			return
		}
		n, err := body.Read(buffer)
		if err != nil {
			return
		}
		left -= n
	}
}

// watchedBody notes whether there is anything left to read.
type watchedBody struct {
	io.ReadCloser
	ended bool // at its end, or the connection failed
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

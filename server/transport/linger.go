package transport

import (
	"io"
	"net/http"
	"time"
)

const (
	// netDiscards is how many bytes of an unread body net/http reads and discards by itself after an answer.
	netDiscards = 256 << 10
	// lingerBytes bounds the bytes that Linger discards of one body. lingerPause bounds the wait for the next
	// bytes, and ReadTimeout bounds the whole.
	lingerBytes = 64 << 20
	lingerPause = 5 * time.Second
)

// Linger lets a client that is still sending its request read an answer that does not wait for the whole
// body, such as "too large". If the server closed the connection at once, later bytes would reset it, and
// many clients would report the reset instead of the answer. So Linger sends the answer, then reads and
// discards the rest of the body: at most 64 MB, with pauses of at most 5 s, for at most ReadTimeout. next
// must write an answer with a Content-Length, so that the client knows where it ends.
//
// Bodies of up to 256 KB and HTTP/2 requests need no help and pass unchanged.
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

// linger flushes the answer and discards the rest of the body.
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

// watchedBody records whether the body was read to its end.
type watchedBody struct {
	io.ReadCloser
	ended bool // the body ended, or the connection failed
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}

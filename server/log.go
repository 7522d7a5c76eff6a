package server

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"regexp"
)

// newLogger writes records of the level ("debug" to "error") and above to w,
// as JSON or as text. Records made with a request's context carry its id.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(contextHandler{slog.NewJSONHandler(w, options)}), nil
	}
	return slog.New(contextHandler{slog.NewTextHandler(w, options)}), nil
}

// contextHandler adds the request's id to what is logged on its behalf,
// whichever package logs it.
type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, record slog.Record) error {
	if id := requestID(ctx); id != "" {
		record.AddAttrs(slog.String("request", id))
	}
	return h.Handler.Handle(ctx, record)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}

type requestIDKey struct{}

func withRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// requestID is the id of the request that ctx belongs to, "" outside of one.
func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

const requestIDHeader = "X-Request-Id"

// Anything else from a client is replaced: the id goes into logs and headers.
var cleanRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives every request an id, the client's own where it is clean, and
// returns it in the answer.
func identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !cleanRequestID.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(withRequestID(r.Context(), id)))
	})
}

package transport

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"

	"tideline/feed/account"
)

// RequestIDHeader has the id, of a request where the client gives one, and of every answer.
const RequestIDHeader = "X-Request-Id"

// cleanRequestID matches the ids that are taken from clients. Any other is
// replaced: an id goes into logs and headers.
var cleanRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

type requestIDKey struct{}

// WithRequestID returns a context of the request with the id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx belongs to, "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// IdentifyRequests gives every request an id and returns it in the answer. It takes
// the client's own where that is clean.
func IdentifyRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if !cleanRequestID.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(account.WithUserAgent(WithRequestID(r.Context(), id), r.UserAgent())))
	})
}

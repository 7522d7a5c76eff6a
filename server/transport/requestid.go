package transport

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"

	"tideline/feed/session"
)

// RequestIDHeader has the request's id: in every answer, and in a request if the client chooses it.
const RequestIDHeader = "X-Request-Id"

// cleanRequestID matches the ids that are accepted from clients. Others are replaced, since the
// id goes into logs and headers.
var cleanRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

type requestIDKey struct{}

// WithRequestID returns a copy of ctx with the request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx belongs to, or "" if there is none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// IdentifyRequests gives every request an id and returns it in the answer. It uses the
// client's own id if that is clean.
func IdentifyRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if !cleanRequestID.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(session.WithUserAgent(WithRequestID(r.Context(), id), r.UserAgent())))
	})
}

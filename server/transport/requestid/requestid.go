// Package requestid gives requests ids, by which an answer is found in the log.
package requestid

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"

	"tideline/feed/account"
)

// Header has the id, of a request where the client gives one, and of every answer.
const Header = "X-Request-Id"

// clean matches the ids that are taken from clients. Any other is
// replaced: an id goes into logs and headers.
var clean = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

type key struct{}

// With returns a context of the request with the id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// Of returns the id of the request that ctx belongs to, "" outside of one.
func Of(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}

// Identify gives every request an id and returns it in the answer. It takes
// the client's own where that is clean.
func Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(Header)
		if !clean.MatchString(id) {
			id = rand.Text()
		}
		w.Header().Set(Header, id)
		next.ServeHTTP(w, r.WithContext(account.WithUserAgent(With(r.Context(), id), r.UserAgent())))
	})
}

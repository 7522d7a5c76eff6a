package transport

import (
	"context"
	"errors"
	"net/http"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/refusal"
	"tideline/graph/exec"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

// The error codes that the transports use. Packages graph and exec use the others.
const (
	codeBadInput        = string(refusal.BadInput)
	codeUnauthenticated = string(refusal.Unauthenticated)
	codeRateLimited     = "RATE_LIMITED"
	codeInternal        = exec.CodeInternal
	codeUnavailable     = string(refusal.Unavailable)
	// The codes of persisted queries. On codeNotPersisted, clients send the request again with the document.
	codeNotPersisted        = "PERSISTED_QUERY_NOT_FOUND"
	codePersistNotSupported = exec.CodePersistedNotSupported
	codeUntrusted           = "DOCUMENT_NOT_TRUSTED"
)

// requestError returns the error of a request that was not executed.
func requestError(code, format string, args ...any) gqlerror.List {
	err := gqlerror.Errorf(format, args...)
	err.Extensions = map[string]any{"code": code}
	return gqlerror.List{err}
}

// refused returns the error of a request that the limits refuse.
func refused(r *limit.Refusal) gqlerror.List {
	errs := requestError(codeRateLimited, "%s", r.Message)
	if r.RetryAfter > 0 {
		errs[0].Extensions["retryAfter"] = r.RetryAfter
	}
	if r.Limit != "" {
		errs[0].Extensions["limit"], errs[0].Extensions["allowed"] = r.Limit, r.Allowed
	}
	return errs
}

// Refuse answers a refused request outside GraphQL in the form of GraphQL answers: errors with a
// message, a code and a reason. It writes nothing and returns false if err is neither a
// *refusal.Error nor a *limit.Refusal.
func Refuse(w http.ResponseWriter, err error) bool {
	errs := told(err)
	if len(errs) == 0 {
		return false
	}
	w.Header().Set("Cache-Control", "no-store")
	respondAs(w, incoming.TypeJSON, statusOf(errs), exec.Response{Errors: errs})
	return true
}

// told returns the errors for the client if err is a refusal, and nil if err is internal.
func told(err error) gqlerror.List {
	var wrong *refusal.Error
	var tooMany *limit.Refusal
	switch {
	case errors.As(err, &tooMany):
		return refused(tooMany)
	case errors.As(err, &wrong):
		return gqlerror.List{{Message: wrong.Message, Extensions: wrong.Extensions()}}
	}
	return nil
}

// codeOf returns the code of the first error, or "OK" if there is none.
func codeOf(errs gqlerror.List) string {
	if len(errs) == 0 {
		return "OK"
	}
	if code, ok := errs[0].Extensions["code"].(string); ok {
		return code
	}
	return codeInternal
}

// retryAfter returns the seconds after which the same request would be allowed. ok is
// false if the errors do not say.
func retryAfter(errs gqlerror.List) (seconds int, ok bool) {
	if len(errs) == 0 {
		return 0, false
	}
	seconds, ok = errs[0].Extensions["retryAfter"].(int)
	return seconds, ok
}

// stamp adds the request id to internal errors. The log has their cause under this id.
func stamp(ctx context.Context, errs gqlerror.List) {
	for _, err := range errs {
		if err.Extensions["code"] == codeInternal {
			err.Extensions["requestId"] = RequestID(ctx)
		}
	}
}

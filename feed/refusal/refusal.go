// Package refusal defines the errors that are shown to clients in full.
package refusal

import (
	"errors"
	"fmt"
	"time"
)

// Code is the class of a refusal. Its value is the API's extensions.code.
type Code string

// The codes of refusals. Any other failure is an ordinary error. Clients see it as INTERNAL,
// without its message.
const (
	// Unauthenticated: the call needs a valid session and has none.
	Unauthenticated Code = "UNAUTHENTICATED"
	// Forbidden: the viewer is known and may not do this.
	Forbidden Code = "FORBIDDEN"
	// NotFound: the object does not exist, or the viewer may not see it.
	NotFound Code = "NOT_FOUND"
	// BadInput: the call itself is wrong, for any viewer.
	BadInput Code = "BAD_USER_INPUT"
	// Conflict: the call is right but contradicts the present state.
	Conflict Code = "CONFLICT"
	// Unavailable: this server lacks something that the call needs now. Nothing was done.
	Unavailable Code = "UNAVAILABLE"
)

// Error is a refusal that is shown to a client in full.
type Error struct {
	Reason  Reason
	Message string
	// Field is the argument, or the field of the input, that caused the refusal; "" if none did.
	Field string
	// Limit, unless empty, names the bound that Given exceeds or falls short of. Allowed is the
	// bound.
	Limit          string
	Allowed, Given int
	// Explanation is a text that a person wrote for the user; "" if nobody did.
	Explanation string
	// Until is when what caused the refusal ends by itself; nil if nothing ends it.
	Until *time.Time
	// RetryAfter is the number of seconds after which the same call should succeed; 0 if that is unknown.
	RetryAfter int
}

// Error returns the message meant for the client.
func (e *Error) Error() string { return e.Message }

// New returns a refusal with a formatted message for the client.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// In sets Field, the argument or the field of the input that caused the refusal. It returns e.
func (e *Error) In(field string) *Error {
	e.Field = field
	return e
}

// Beyond sets the bound that was not kept, and the value that was given. It returns e.
func (e *Error) Beyond(limit string, allowed, given int) *Error {
	e.Limit, e.Allowed, e.Given = limit, allowed, given
	return e
}

// Because sets the text that a person wrote for the user. It returns e.
func (e *Error) Because(explanation string) *Error {
	e.Explanation = explanation
	return e
}

// Ends sets the time when what caused the refusal ends by itself. It returns e.
func (e *Error) Ends(until *time.Time) *Error {
	e.Until = until
	return e
}

// Retry sets the number of seconds after which the same call should succeed. It returns e.
func (e *Error) Retry(seconds int) *Error {
	e.RetryAfter = seconds
	return e
}

// Extensions returns the part of the refusal that a client's program reads: code and reason, and,
// if they are set, field, limit, allowed, given, explanation, until and retryAfter.
func (e *Error) Extensions() map[string]any {
	extensions := map[string]any{"code": string(e.Reason.Code), "reason": e.Reason.Name}
	if e.Field != "" {
		extensions["field"] = e.Field
	}
	if e.Limit != "" {
		extensions["limit"], extensions["allowed"], extensions["given"] = e.Limit, e.Allowed, e.Given
	}
	if e.Explanation != "" {
		extensions["explanation"] = e.Explanation
	}
	if e.Until != nil {
		extensions["until"] = e.Until.UTC().Format(time.RFC3339)
	}
	if e.RetryAfter > 0 {
		extensions["retryAfter"] = e.RetryAfter
	}
	return extensions
}

// CodeOf returns the code of the refusal that err is or wraps, or "" for any other error.
func CodeOf(err error) Code { return ReasonOf(err).Code }

// ReasonOf returns the reason of the refusal that err is or wraps, or the zero Reason for any other
// error.
func ReasonOf(err error) Reason {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return Reason{}
}

// IsWrongCredential reports whether err refuses an invalid credential. A server that acts for an
// unknown user with a valid key has shown a valid credential.
func IsWrongCredential(err error) bool {
	reason := ReasonOf(err)
	return reason.Code == Unauthenticated && reason != NobodyToActFor
}

// Common refusals. A post that the viewer may not see is refused in the same words as a post that
// does not exist.
var (
	ErrSignIn     error = New(SignIn, "Sign in first.")
	ErrNoSuchPost error = New(NoSuchPost, "There is no such post.")
	ErrNoSuchUser error = New(NoSuchUser, "There is no such user.")
)

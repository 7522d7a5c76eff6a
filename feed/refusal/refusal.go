// Package refusal has the errors that a client is told in full.
package refusal

import (
	"errors"
	"fmt"
)

// Code says what kind of refusal an Error is. Its value is the API's
// extensions.code.
type Code string

// The codes of refusals. Any other failure is an ordinary error, which clients see
// as INTERNAL and never in its own words.
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
)

// Error is a refusal that a client is told in full.
type Error struct {
	Code    Code
	Message string
}

// Error returns the message meant for the client.
func (e *Error) Error() string { return e.Message }

// New returns a refusal with a formatted message for the client.
func New(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of the refusal that err is or wraps, "" for any other
// error.
func CodeOf(err error) Code {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

// The refusals of many calls. A post that the viewer may not see is refused in the
// same words as one that does not exist.
var (
	ErrSignIn     = New(Unauthenticated, "Sign in first.")
	ErrNoSuchPost = New(NotFound, "There is no such post.")
	ErrNoSuchUser = New(NotFound, "There is no such user.")
)

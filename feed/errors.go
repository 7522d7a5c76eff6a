package feed

import (
	"errors"
	"fmt"
)

// Code says what kind of refusal an Error is. Its value is the API's
// extensions.code.
type Code string

// The codes of refusals. Anything else that goes wrong is an ordinary error,
// which clients see as INTERNAL and never in its own words.
const (
	// Unauthenticated: the call needs a session and has none that is valid.
	Unauthenticated Code = "UNAUTHENTICATED"
	// Forbidden: the viewer is known and may not do this.
	Forbidden Code = "FORBIDDEN"
	// NotFound: no such thing, or none that the viewer may see.
	NotFound Code = "NOT_FOUND"
	// BadInput: the call itself is wrong, whoever makes it.
	BadInput Code = "BAD_USER_INPUT"
	// Conflict: the call is right but the state of things is against it.
	Conflict Code = "CONFLICT"
)

// Error is a refusal that a client is told in full.
type Error struct {
	Code    Code
	Message string
}

// Error returns the message meant for the client.
func (e *Error) Error() string { return e.Message }

// CodeOf is the code of the refusal that err is or wraps, "" for any other error.
func CodeOf(err error) Code {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return ""
}

func refuse(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

var (
	errSignIn     = refuse(Unauthenticated, "Sign in first.")
	errNoSuchPost = refuse(NotFound, "There is no such post.")
	errNoSuchUser = refuse(NotFound, "There is no such user.")
)

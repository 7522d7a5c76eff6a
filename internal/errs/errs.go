// Package errs makes errors: of what failed, without secrets, and of values out of bounds.
package errs

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
)

// Bound returns an error that names the value and its bounds if the value is out of bounds, and otherwise nil.
func Bound[T cmp.Ordered](name string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("%s is %v: it must be %v to %v", name, value, least, most)
	}
	return nil
}

// Wrap returns err with what was being done, as fmt.Errorf formats it, or nil if err is nil. errors.Is and
// errors.As look through it.
func Wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(doing+": %w", append(args, err)...)
}

// WithoutURL returns the error of an HTTP request without the address, which may contain a secret.
func WithoutURL(err error) error {
	var ofRequest *url.Error
	if errors.As(err, &ofRequest) {
		return ofRequest.Err
	}
	return err
}

// Package errs says of an error what failed.
package errs

import "fmt"

// Wrap returns err with what was being done, as fmt.Errorf formats it, or nil if err is nil. errors.Is and
// errors.As look through it.
func Wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(doing+": %w", append(args, err)...)
}

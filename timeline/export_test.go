package timeline

import "context"

// Touch is Visit for tests that do not need the position.
func (v *Visits) Touch(ctx context.Context, user int64) error {
	_, err := v.Visit(ctx, user)
	return err
}

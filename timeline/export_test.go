package timeline

import "context"

// Touch is Visit for tests that do not need the position.
func (s *Store) Touch(ctx context.Context, user int64) error {
	_, err := s.Visit(ctx, user)
	return err
}

package graph

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/ids"
)

// A server that cannot make ids has done nothing, and says when to try again. That is not an internal error.
func TestNoIDsIsUnavailable(t *testing.T) {
	t.Parallel()
	err := presenter(nil)(t.Context(), fmt.Errorf("create post: %w", ids.ErrNoLease))
	require.Equal(t, map[string]any{"code": "UNAVAILABLE", "reason": "NO_IDS", "retryAfter": retryNoIDs}, err.Extensions)
}

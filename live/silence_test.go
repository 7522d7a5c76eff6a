package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// By the bounds that hold when none is set, a connection that has fallen silent is
// noticed and replaced within ten seconds: after the longest that nothing may be
// heard, a step on another connection that is silent as well, and the pause before
// the next attempt.
func TestSilenceIsNoticedWithinTenSeconds(t *testing.T) {
	h := NewHub(nil, HubConfig{})
	require.LessOrEqual(t, h.cfg.Silence+stepTimeout+minRetry*3/2, 10*time.Second)
}

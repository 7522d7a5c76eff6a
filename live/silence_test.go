package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With the default bounds, a hub notices and replaces a silent connection within ten
// seconds. The time is the sum of Silence, a registrar step on another connection that
// is silent as well, and the pause before the next attempt.
func TestSilenceIsNoticedWithinTenSeconds(t *testing.T) {
	h := NewHub(nil, HubConfig{})
	require.LessOrEqual(t, h.cfg.Silence+stepTimeout+minRetry*3/2, 10*time.Second)
}

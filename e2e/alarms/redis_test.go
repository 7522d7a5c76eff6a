package alarms

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// Redis stops, loses the hub's connection again and again, and is emptied between reads.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	server := storagetest.Redis(t, h.stores)
	h.try(t, fault{
		what:   "Redis has stopped",
		alerts: []string{"TidelineNotReady"},
		cause:  server.Kill,
		cure:   func() { server.Start(t) },
	})
}

// The connections of pub/sub are killed twice a second.
func TestHubDisturbed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.listen(t, 40)
	h.try(t, fault{
		what:   "pub/sub is killed twice a second, 40 clients",
		alerts: []string{"TidelineHubReconnects", "TidelineResyncStorm"},
		cause:  func() {},
		repeat: func() {
			require.NoError(t, h.stores.Redis.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
			time.Sleep(500 * time.Millisecond)
		},
		cure: func() {},
	})
}

// Redis is emptied between reads.
func TestInboxMisses(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.try(t, fault{
		what:   "Redis is emptied again and again",
		alerts: []string{"TidelineInboxMisses"},
		cause:  func() {},
		repeat: func() { storagetest.Wipe(t, h.stores); h.read(t) },
		cure:   func() {},
		well:   func() { h.read(t) },
	})
}

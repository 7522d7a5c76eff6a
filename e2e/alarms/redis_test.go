package alarms

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// Redis stops.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	server := storagetest.Redis(t, h.stores)
	h.try(t, fault{
		what:   "Redis has stopped",
		alerts: []string{"TidelineNotReady"},
		cause:  server.Kill,
		cure:   func() { server.Start(t) },
	})
}

// The memory of Redis is nearly used up.
func TestRedisNearlyFull(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	set := func(most int64) {
		require.NoError(t, h.stores.Redis.ConfigSet(t.Context(), "maxmemory", strconv.FormatInt(most, 10)).Err())
	}
	h.try(t, fault{
		what:   "Redis uses nine tenths of its memory",
		alerts: []string{"TidelineRedisNearlyFull"},
		cause: func() {
			now, err := h.stores.State(t.Context())
			require.NoError(t, err)
			set(now.Masters[0].Used * 10 / 9)
		},
		cure: func() { set(0) },
	})
}

// The pub/sub connections are killed twice per second.
func TestHubDisturbed(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
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
	h := newFixture(t)
	h.try(t, fault{
		what:   "Redis is emptied again and again",
		alerts: []string{"TidelineInboxMisses"},
		cause:  func() {},
		repeat: func() { storagetest.Wipe(t, h.stores); h.read(t) },
		cure:   func() {},
		well:   func() { h.read(t) },
	})
}

// A server cannot renew the lease of its number for ids. Then an inbox lacks a post that SQL
// has, and the sampling finds the difference. The first fault lasts about a minute, so the post is
// then old enough to count as missing.
func TestTimelinesDiffer(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.post(t)
	h.post(t)
	h.arrived(t, 2)
	h.try(t, fault{
		what:   "leases of numbers for ids cannot be renewed",
		alerts: []string{"TidelineNoIds"},
		cause:  func() { h.exec(t, "ALTER TABLE writers RENAME TO away") },
		cure:   func() { h.exec(t, "ALTER TABLE away RENAME TO writers") },
	})
	h.try(t, fault{
		what:   "an entry is taken out of an inbox",
		alerts: []string{"TidelineTimelinesDiffer"},
		cause: func() {
			require.Equal(t, int64(1), h.stores.Redis.ZRemRangeByRank(t.Context(), inbox, 0, 0).Val())
		},
		cure: func() { h.run(t, "feeds", "verify", "ben", "--repair") },
	})
	h.arrived(t, 2)
}

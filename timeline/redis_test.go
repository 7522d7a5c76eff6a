package timeline_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// onMasters runs fn on the server, or on every master of the cluster.
func onMasters(t testing.TB, rdb redisclient.Client, fn func(ctx context.Context, c *redis.Client) error) {
	t.Helper()
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(t.Context(), fn))
		return
	}
	require.NoError(t, fn(t.Context(), rdb.(*redis.Client)))
}

// wipe puts Redis in its state after an empty start: no data, no scripts.
func wipe(t testing.TB, rdb redisclient.Client) {
	t.Helper()
	onMasters(t, rdb, func(ctx context.Context, c *redis.Client) error {
		return c.FlushAll(ctx).Err()
	})
	forgetScripts(t, rdb)
}

func forgetScripts(t testing.TB, rdb redisclient.Client) {
	t.Helper()
	onMasters(t, rdb, func(ctx context.Context, c *redis.Client) error {
		return c.ScriptFlush(ctx).Err()
	})
}

// The keys in Redis, repeated here: processes of different versions share them.

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func inboxSet(user int64) string  { return "tl:{i" + itoa(user) + "}:z" }
func inboxMeta(user int64) string { return "tl:{i" + itoa(user) + "}:m" }

func activeKey(user int64) string {
	return "tl:{a" + strconv.FormatUint(uint64(user)*0x9E3779B97F4A7C15>>60, 10) + "}"
}

package live_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage/storagetest"
)

func closing[C redisclient.Client](t testing.TB, rdb C) C {
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// serverClient is a client of a redis-server.
func serverClient(t testing.TB, server *storagetest.RedisServer) *redis.Client {
	opt, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	return closing(t, redis.NewClient(opt))
}

// flush wipes every master.
func flush(t testing.TB, rdb redisclient.Client) {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		}))
		return
	}
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
}

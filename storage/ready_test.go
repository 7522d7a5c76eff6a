package storage_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// CheckRedis distinguishes a Redis that answers but accepts no writes from a Redis that does not
// answer and from a healthy one.
func TestCheckRedisWrites(t *testing.T) {
	t.Parallel()
	t.Run("in the process", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storagetest.Embedded(t).CheckRedis(t.Context()))
	})
	t.Run("one redis-server", func(t *testing.T) {
		t.Parallel()
		server := storagetest.StartRedis(t)
		s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: server.URL()})
		rdb := s.Redis.(*redis.Client)
		refused := func(words string) {
			t.Helper()
			err := s.CheckRedis(t.Context())
			require.ErrorIs(t, err, storage.ErrNoWrites)
			require.ErrorContains(t, err, words)
			require.NoError(t, rdb.Ping(t.Context()).Err(), "it answers")
		}
		require.NoError(t, s.CheckRedis(t.Context()))
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		refused("OOM")
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		require.NoError(t, s.CheckRedis(t.Context()))
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
		refused("NOREPLICAS")
		require.NoError(t, rdb.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
		require.NoError(t, rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err()) // no server listens there
		refused("READONLY")
		require.NoError(t, rdb.Do(t.Context(), "replicaof", "no", "one").Err())
		require.NoError(t, s.CheckRedis(t.Context()))
		keys, err := rdb.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 1)
		life, err := rdb.PTTL(t.Context(), keys[0]).Result()
		require.NoError(t, err)
		require.Positive(t, life, "it leaves nothing")
		server.Kill()
		err = s.CheckRedis(t.Context())
		require.Error(t, err)
		require.NotErrorIs(t, err, storage.ErrNoWrites)
	})
	t.Run("a cluster", func(t *testing.T) {
		t.Parallel()
		s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.StartCluster(t).URL()})
		cluster := s.Redis.(*redis.ClusterClient)
		var masters []*redis.Client
		found := make(chan *redis.Client, 16)
		require.NoError(t, cluster.ForEachMaster(t.Context(), func(_ context.Context, master *redis.Client) error {
			found <- master
			return nil
		}))
		close(found)
		for master := range found {
			masters = append(masters, master)
		}
		require.Greater(t, len(masters), 1)
		require.NoError(t, s.CheckRedis(t.Context()))
		for _, master := range masters {
			require.NoError(t, master.ConfigSet(t.Context(), "maxmemory", "1").Err())
			err := s.CheckRedis(t.Context())
			require.ErrorIs(t, err, storage.ErrNoWrites)
			require.ErrorContains(t, err, master.Options().Addr)
			require.ErrorContains(t, err, "OOM")
			answers, err := s.CheckMasters(t.Context())
			require.NoError(t, err)
			require.Len(t, answers, len(masters))
			for addr, err := range answers {
				require.Equal(t, addr == master.Options().Addr, err != nil, "%s: %v", addr, err)
			}
			require.NoError(t, master.ConfigSet(t.Context(), "maxmemory", "0").Err())
			require.NoError(t, s.CheckRedis(t.Context()))
		}
	})
}

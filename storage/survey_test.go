package storage_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestSurvey(t *testing.T) {
	t.Parallel()
	s := storagetest.Real(t)
	rdb := s.Redis.(*redis.Client)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "zset-max-listpack-entries", "77").Err())
	found, err := s.Survey(t.Context())
	require.NoError(t, err)
	require.Len(t, found.Masters, 1)
	require.Equal(t, rdb.Options().Addr, found.Masters[0].Addr)
	require.Equal(t, "allkeys-lru", found.Masters[0].Eviction)
	require.Equal(t, 77, found.Masters[0].Listpack)
	require.Less(t, found.SQLAhead.Abs(), time.Minute)
	require.Less(t, found.Masters[0].Ahead.Abs(), time.Minute)
	require.Contains(t, found.Forgetful, "fsync", "the tests' PostgreSQL does without")
}

func TestWhereAndHowTheStoresAreReached(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config     storage.Config
		sql, redis string
		risks      []string
	}{
		"embedded": {storage.Config{DataDir: "d"}, "SQLite in d/tideline.db", "inside the process", nil},
		"this machine": {
			storage.Config{DatabaseURL: "postgres://u:topsecret@127.0.0.1/n", RedisURL: "redis://localhost"},
			"PostgreSQL on 127.0.0.1:5432, database n", "localhost:6379", nil,
		},
		"others, in the open": {
			storage.Config{DatabaseURL: "postgres://u:topsecret@db/n?sslmode=prefer", RedisURL: "redis://a,b:7000"},
			"PostgreSQL on db:5432, database n", "a:6379, b:7000",
			[]string{"PostgreSQL on db may be reached without TLS", "Redis is reached without TLS", "Redis is reached without a password"},
		},
		"others, well guarded": {
			storage.Config{DatabaseURL: "postgres://u:topsecret@db:99/n?sslmode=require", RedisURL: "rediss://:topsecret@a"},
			"PostgreSQL on db:99, database n", "a:6379", nil,
		},
		"Sentinels": {
			storage.Config{DataDir: "d", RedisURL: "rediss://s1,s2?master_name=m&password=topsecret"},
			"SQLite in d/tideline.db", "named m by the Sentinels s1:26379, s2:26379", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			sql, rdb := c.config.Places()
			require.Equal(t, c.sql, sql)
			require.Equal(t, c.redis, rdb)
			risks := c.config.Risks()
			require.Len(t, risks, len(c.risks), risks)
			for i, want := range c.risks {
				require.Contains(t, risks[i], want)
				require.NotContains(t, risks[i], "topsecret")
			}
		})
	}
}

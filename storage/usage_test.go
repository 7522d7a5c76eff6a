package storage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// The processor time of the stores is known if it can be read, and nil otherwise.
func TestUsageIsKnownOrNil(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for i := range 100 {
			require.NoError(t, s.Redis.ZAdd(t.Context(), fmt.Sprintf("a:%d", i%10), redis.Z{Member: i}).Err())
		}
		require.NoError(t, s.Redis.HSet(t.Context(), "b:1", "x", 1, "y", 2).Err())
		require.NoError(t, s.Redis.SMIsMember(t.Context(), "c", 1).Err())

		spent, err := s.Spent(t.Context())
		require.NoError(t, err)
		kinds, err := s.Keys(t.Context(), 1000, func(key string) string {
			kind, _, _ := strings.Cut(key, ":")
			return strings.TrimSuffix(kind, "c")
		})
		require.NoError(t, err)
		_, err = s.CommandTime(t.Context(), "smismember")
		require.NoError(t, err)
		if s.Embedded {
			require.Nil(t, spent.Redis)
			require.Nil(t, spent.SQL, "SQLite is in this process")
			require.Empty(t, kinds)
		} else {
			require.NotNil(t, spent.Redis)
			require.Len(t, kinds, 2)
			require.Equal(t, int64(10), kinds["a"].Count)
			require.Equal(t, int64(100), kinds["a"].Entries)
			require.Greater(t, kinds["a"].Bytes, int64(10*50))
			require.Equal(t, int64(2), kinds["b"].Entries)
			if _, err := os.Stat("/proc/self/stat"); err == nil {
				require.NotNil(t, spent.SQL)
				require.Positive(t, *spent.SQL)
			}
		}

		require.NoError(t, s.DB.Writer.Create().SetID(1).Exec(t.Context()))
		tables, err := s.Tables(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(tables, func(table storage.Table) bool { return table.Name == "writers" })
		require.GreaterOrEqual(t, i, 0, "%v", tables)
		require.Equal(t, int64(1), tables[i].Rows)
		require.Positive(t, tables[i].Bytes)
	})
}

func TestUsageOfAllMastersOfACluster(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.ClusterURL(t)})
	for i := range 30 {
		require.NoError(t, s.Redis.ZAdd(t.Context(), fmt.Sprintf("usage:%d", i), redis.Z{Member: i}).Err())
	}
	kinds, err := s.Keys(t.Context(), 1_000_000, func(key string) string {
		kind, _, _ := strings.Cut(key, ":")
		return strings.TrimPrefix(kind, "{")
	})
	require.NoError(t, err)
	require.Equal(t, int64(30), kinds["usage"].Count)
}

// Another process opens the SQLite file of an embedded server, whose data directory is locked.
func TestOpenBesideAnEmbeddedProcess(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir()}
	_, err := storage.OpenBeside(t.Context(), cfg, discard)
	require.ErrorIs(t, err, os.ErrNotExist, "it makes no file")
	running := storagetest.Open(t, cfg)
	require.NoError(t, running.Migrate(t.Context()))
	s, err := storage.OpenBeside(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.Nil(t, s.Redis)
	tables, err := s.Tables(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	require.NoError(t, s.Close())
}

// A command joins the process that owns the data directory and uses the Redis inside it. Without
// such a process, it opens the stores itself, even after one was killed.
func TestJoin(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir()}
	running, err := storage.Open(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.NoError(t, running.Migrate(t.Context()))
	joined, err := storage.Join(t.Context(), cfg, discard)
	require.NoError(t, err)
	require.False(t, joined.Embedded)
	require.NoError(t, joined.Redis.Set(t.Context(), "from", "outside", 0).Err())
	value, err := running.Redis.Get(t.Context(), "from").Result()
	require.NoError(t, err)
	require.Equal(t, "outside", value)
	heard := running.Redis.Subscribe(t.Context(), "news")
	_, err = heard.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, joined.Redis.Publish(t.Context(), "news", "hello").Err())
	message, err := heard.ReceiveMessage(t.Context())
	require.NoError(t, err)
	require.Equal(t, "hello", message.Payload)
	require.NoError(t, heard.Close())
	pipe := joined.Redis.Pipeline()
	for i := range 10_000 {
		pipe.Set(t.Context(), strconv.Itoa(i), strings.Repeat("x", 100), 0)
	}
	_, err = pipe.Exec(t.Context())
	require.NoError(t, err)
	n, err := running.DB.User.Query().Count(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	info, err := os.Stat(filepath.Join(cfg.DataDir, "run"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	require.NoError(t, running.Close())
	require.Error(t, joined.Redis.Ping(t.Context()).Err())
	require.NoError(t, joined.Close())
	socket := filepath.Join(cfg.DataDir, "run", "redis.sock")
	require.NoError(t, os.WriteFile(socket, nil, 0o600)) // a killed process leaves it behind
	for range 2 {
		alone, err := storage.Join(t.Context(), cfg, discard)
		require.NoError(t, err)
		require.True(t, alone.Embedded)
		second, err := storage.Join(t.Context(), cfg, discard)
		require.NoError(t, err)
		require.NoError(t, second.Redis.Ping(t.Context()).Err())
		require.NoError(t, second.Close())
		require.NoError(t, alone.Close())
	}
}

// A server works with a data directory whose name is too long for a socket. Commands are refused.
func TestJoinWhereNoSocketIsPossible(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: filepath.Join(t.TempDir(), strings.Repeat("long", 40))}
	running, err := storage.Open(t.Context(), cfg, discard)
	require.NoError(t, err)
	_, err = storage.Join(t.Context(), cfg, discard)
	require.ErrorContains(t, err, "lets nobody else in")
	require.NoError(t, running.Close())
}

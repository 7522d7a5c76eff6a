package meter

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// The processor time of the stores is known if it can be read, and nil otherwise.
func TestUsageIsKnownOrNil(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		for i := range 100 {
			require.NoError(t, s.Redis.ZAdd(t.Context(), fmt.Sprintf("a:%d", i%10), redis.Z{Member: i}).Err())
		}
		require.NoError(t, s.Redis.HSet(t.Context(), "b:1", "x", 1, "y", 2).Err())
		require.NoError(t, s.Redis.SMIsMember(t.Context(), "c", 1).Err())

		sql, rdb, err := spent(t.Context(), s)
		require.NoError(t, err)
		kinds, err := keysOf(t.Context(), s, 1000, func(key string) string {
			kind, _, _ := strings.Cut(key, ":")
			return strings.TrimSuffix(kind, "c")
		})
		require.NoError(t, err)
		_, err = commandTime(t.Context(), s, "smismember")
		require.NoError(t, err)
		if s.Embedded {
			require.Nil(t, rdb)
			require.Nil(t, sql, "SQLite is in this process")
			require.Empty(t, kinds)
		} else {
			require.NotNil(t, rdb)
			require.Len(t, kinds, 2)
			require.Equal(t, int64(10), kinds["a"].count)
			require.Equal(t, int64(100), kinds["a"].entries)
			require.Greater(t, kinds["a"].bytes, int64(10*50))
			require.Equal(t, int64(2), kinds["b"].entries)
			if _, err := os.Stat("/proc/self/stat"); err == nil {
				require.NotNil(t, sql)
				require.Positive(t, *sql)
			}
		}

		require.NoError(t, s.DB.Writer.Create().SetID(1).Exec(t.Context()))
		tables, err := tablesOf(t.Context(), s)
		require.NoError(t, err)
		i := slices.IndexFunc(tables, func(of table) bool { return of.name == "writers" })
		require.GreaterOrEqual(t, i, 0, "%v", tables)
		require.Equal(t, int64(1), tables[i].rows)
		require.Positive(t, tables[i].bytes)
	})
}

func TestUsageOfAllMastersOfACluster(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.ClusterURL(t)})
	for i := range 30 {
		require.NoError(t, s.Redis.ZAdd(t.Context(), fmt.Sprintf("usage:%d", i), redis.Z{Member: i}).Err())
	}
	kinds, err := keysOf(t.Context(), s, 1_000_000, func(key string) string {
		kind, _, _ := strings.Cut(key, ":")
		return strings.TrimPrefix(kind, "{")
	})
	require.NoError(t, err)
	require.Equal(t, int64(30), kinds["usage"].count)
}

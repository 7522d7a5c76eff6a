package storage_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// silentPostgres opens stores with short timeouts on a PostgreSQL that can fall silent.
func silentPostgres(t *testing.T) (*storage.Stores, *storagetest.Proxy) {
	u, err := url.Parse(storagetest.PostgresURL(t))
	require.NoError(t, err)
	p := storagetest.StartProxy(t, "tcp", u.Host)
	u.Host = p.Addr
	return storagetest.Open(t, storage.Config{
		DataDir: t.TempDir(), DatabaseURL: u.String() + "&connect_timeout=3", StatementTimeout: 3 * time.Second,
	}), p
}

// ends requires that do, whose context has no deadline, returns an error.
func ends(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	_, bounded := t.Context().Deadline()
	require.False(t, bounded)
	ended := make(chan error, 1)
	begun := time.Now()
	go func() { ended <- do(t.Context()) }()
	select {
	case err := <-ended:
		require.Error(t, err)
		t.Logf("%v after %v", err, time.Since(begun))
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}

// When PostgreSQL falls silent, every operation without its own deadline ends. Operations work
// again as soon as PostgreSQL does.
func TestNothingWaitsForASilentPostgresForEver(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(ctx context.Context, s *storage.Stores) error{
		"read": func(ctx context.Context, s *storage.Stores) error {
			_, err := s.DB.User.Get(ctx, 1)
			return err
		},
		"write": func(ctx context.Context, s *storage.Stores) error {
			return s.DB.User.UpdateOneID(1).AddPostCount(1).Exec(ctx)
		},
		"transaction": countPost,
		"statement without ent": func(ctx context.Context, s *storage.Stores) error {
			_, err := s.SQL.ExecContext(ctx, "UPDATE users SET bio = 'x'")
			return err
		},
		"rows without ent": func(ctx context.Context, s *storage.Stores) error {
			rows, err := s.SQL.QueryContext(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
			}
			return rows.Err()
		},
		"sign of life": func(ctx context.Context, s *storage.Stores) error { return s.Ping(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy := silentPostgres(t)
			addUser(t, s, 1)
			require.NoError(t, do(t.Context(), s))
			proxy.Silence(true)
			for range 3 { // on the open connection, and on new ones
				ends(t, func(ctx context.Context) error { return do(ctx, s) })
			}
			proxy.Silence(false)
			require.NoError(t, do(t.Context(), s))
		})
	}
	t.Run("a look at an idle connection", func(t *testing.T) {
		t.Parallel()
		s, proxy := silentPostgres(t)
		addUser(t, s, 1)
		time.Sleep(1100 * time.Millisecond) // pgx checks a connection that was idle for a second
		proxy.Silence(true)
		ends(t, func(ctx context.Context) error { return s.DB.User.UpdateOneID(1).AddPostCount(1).Exec(ctx) })
	})
	t.Run("in a transaction", func(t *testing.T) {
		t.Parallel()
		s, proxy := silentPostgres(t)
		addUser(t, s, 1)
		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		proxy.Silence(true)
		ends(t, func(ctx context.Context) error { return tx.User.UpdateOneID(1).AddPostCount(1).Exec(ctx) })
		ends(t, func(context.Context) error { return tx.Rollback() })
	})
	t.Run("in the middle of rows", func(t *testing.T) {
		t.Parallel()
		s, proxy := silentPostgres(t)
		rows, err := s.SQL.QueryContext(t.Context(), "SELECT repeat('x', 1000) FROM generate_series(1, 100000)") //nolint:sqlclosecheck // closed below; the linter loses sight of rows that a closure uses
		require.NoError(t, err)
		defer rows.Close()
		require.True(t, rows.Next())
		proxy.Silence(true)
		ends(t, func(context.Context) error {
			for rows.Next() {
			}
			return rows.Err()
		})
	})
}

// The caller's deadline applies, even if it is later than the default.
func TestALongerDeadlineHolds(t *testing.T) {
	t.Parallel()
	s, _ := silentPostgres(t)
	slow := func(ctx context.Context, seconds int) error {
		_, err := s.SQL.ExecContext(ctx, fmt.Sprintf("SELECT pg_sleep(%d)", seconds))
		return err
	}
	ends(t, func(ctx context.Context) error { return slow(ctx, 600) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, slow(ctx, 4))
}

// A process that is suspended in a transaction does not keep its locks.
func TestPostgresEndsATransactionThatIsSilent(t *testing.T) {
	t.Parallel()
	s, _ := silentPostgres(t)
	addUser(t, s, 1)
	stopped, err := s.DB.Tx(t.Context())
	require.NoError(t, err)
	require.NoError(t, stopped.User.UpdateOneID(1).AddPostCount(1).Exec(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, countPost(ctx, s))
	require.Error(t, stopped.Commit())
	require.Equal(t, 1, s.DB.User.GetX(t.Context(), 1).PostCount)
}

// Every Redis command has a timeout, whatever its context.
func TestRedisIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, _ bool) {
		bounded := func(_ context.Context, c *redis.Client) error {
			o := c.Options()
			for _, bound := range []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout} {
				assert.Positive(t, bound)
				assert.LessOrEqual(t, bound, 2*time.Minute)
			}
			assert.True(t, o.ContextTimeoutEnabled)
			return nil
		}
		if cluster, ok := rdb.(*redis.ClusterClient); ok {
			require.NoError(t, cluster.ForEachShard(t.Context(), bounded))
		} else {
			require.NoError(t, bounded(t.Context(), rdb.(*redis.Client)))
		}
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		server := strings.TrimPrefix(storagetest.StartRedis(t).URL(), "unix://")
		proxy := storagetest.StartProxy(t, "unix", server)
		s := storagetest.Open(t, storage.Config{
			DataDir: t.TempDir(), RedisURL: "redis://" + proxy.Addr + "?dial_timeout=1s&read_timeout=1s",
		})
		proxy.Silence(true)
		ends(t, func(ctx context.Context) error { return s.Redis.Set(ctx, "k", "w", 0).Err() })
		proxy.Silence(false)
		require.Eventually(t, func() bool { return s.Redis.Set(t.Context(), "k", "v", 0).Err() == nil }, time.Minute, 10*time.Millisecond)
	})
}

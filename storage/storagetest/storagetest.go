// Package storagetest gives tests real databases.
//
// It starts PostgreSQL, redis-server and a Redis Cluster when a test first asks for them, on free
// ports, in temporary directories, also as root.
//
// Invariants:
//
//   - Every test gets its own stores, empty and migrated, so that tests can run in parallel. The
//     exception is the shared cluster: there is one per test binary, and tests use it one at a
//     time.
//   - Nothing outlives the test binary. [Main] stops the servers. On operating systems that support
//     it, a killed test binary takes its servers along.
//
// A test that needs a program that is not installed is skipped with a message. With
// TIDELINE_TEST_REQUIRE_REAL=1 it fails instead. The package does not speed up time and contains no
// fakes: the embedded setup is the same as in the product.
package storagetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/internal/redisclient"
	"tideline/storage"
)

// Main runs the tests, stops the servers that they started, and exits. If the tests passed, it runs
// the checks before it exits, and fails if one returns an error. Checks are meant for leak
// detectors: at this point the package itself holds nothing.
//
//	func TestMain(m *testing.M) { storagetest.Main(m, func() error { return goleak.Find() }) }
func Main(m *testing.M, checks ...func() error) {
	code := m.Run()
	stopAll()
	for _, check := range checks {
		if code != 0 {
			break
		}
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// LeftOut reports whether this run leaves out packages whose tests take minutes because they start
// complete installations and break them. Runs with -short, such as "make test", do. The TestMain of
// such a package calls it first, and returns if it is true.
func LeftOut() bool {
	flag.Parse()
	return testing.Short()
}

// Long skips a test in runs with -short, such as "make test". It is for tests that take seconds and
// that only a nearby change could break. "make check" runs them.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it takes long")
	}
}

// Each runs fn twice, as the subtests "sqlite+embedded" and "postgres+redis". Each subtest gets its
// own empty, migrated stores, which are closed when it ends. The subtests run one after the other;
// call t.Parallel before Each to run beside other tests.
//
// Runs with -short run only one of the two. The name of the test decides which, so half of the
// tests run on each.
func Each(t *testing.T, fn func(t *testing.T, s *storage.Stores)) {
	t.Helper()
	real := crc32.ChecksumIEEE([]byte(t.Name()))%2 == 1
	if !testing.Short() || !real {
		t.Run("sqlite+embedded", func(t *testing.T) { fn(t, Embedded(t)) })
	}
	if !testing.Short() || real {
		t.Run("postgres+redis", func(t *testing.T) { fn(t, Real(t)) })
	}
}

// EachRedis runs fn three times, as the subtests "embedded", "redis" and "cluster", each on an
// empty Redis.
func EachRedis(t *testing.T, fn func(t *testing.T, rdb redisclient.Client, sharded bool)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		s := Open(t, storage.Config{DataDir: t.TempDir()})
		fn(t, s.Redis, s.Sharded)
	})
	t.Run("redis", func(t *testing.T) {
		s := Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: StartRedis(t).URL()})
		fn(t, s.Redis, s.Sharded)
	})
	t.Run("cluster", func(t *testing.T) {
		s := Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: ClusterURL(t)})
		fn(t, s.Redis, s.Sharded)
	})
}

// Embedded returns migrated stores on a new SQLite file and an in-process Redis.
func Embedded(t testing.TB) *storage.Stores {
	t.Helper()
	migrated, err := migratedSQLite()
	require.NoError(t, err)
	// Commits need not be durable, because the databases end with the tests.
	cfg := storage.Config{DataDir: t.TempDir(), SQLiteSync: "normal"}
	require.NoError(t, os.WriteFile(filepath.Join(cfg.DataDir, sqliteFile), migrated, 0o600))
	return Open(t, cfg)
}

// sqliteFile is the name of the database in a data directory.
const sqliteFile = "tideline.db"

// migratedSQLite returns the file of a migrated database without rows.
var migratedSQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := newDir("sqlite")
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // all tests share the file, so no test owns the context
	s, err := storage.Open(ctx, storage.Config{DataDir: dir, SQLiteSync: "normal"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, sqliteFile))
})

// Real returns migrated stores on a new PostgreSQL database and a new redis-server. It skips the
// test if either is not installed.
func Real(t testing.TB) *storage.Stores {
	t.Helper()
	return Open(t, storage.Config{DatabaseURL: PostgresURL(t), RedisURL: StartRedis(t).URL()})
}

// Open opens cfg without migrating, and closes the stores when the test ends. Only stores from this
// package can be passed to [Config] and [Queries].
func Open(t testing.TB, cfg storage.Config) *storage.Stores {
	t.Helper()
	s, err := storage.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	queries := new(atomic.Int64)
	s.DB = ent.NewClient(ent.Driver(dialect.DebugWithContext(s.Driver,
		func(_ context.Context, v ...any) {
			if len(v) == 1 && isStatement(fmt.Sprint(v[0])) {
				queries.Add(1)
			}
		})))
	opened.Store(s, &origin{cfg: cfg, queries: queries})
	t.Cleanup(func() {
		opened.Delete(s)
		require.NoError(t, s.Close())
	})
	return s
}

// opened maps every open *storage.Stores to its *origin.
var opened sync.Map

type origin struct {
	cfg     storage.Config
	queries *atomic.Int64
}

func originOf(s *storage.Stores) *origin {
	o, ok := opened.Load(s)
	if !ok {
		panic("storagetest: these stores were opened elsewhere, or are closed")
	}
	return o.(*origin)
}

// isStatement reports whether a log line of ent's debug driver is about a statement, not about the
// begin or the end of a transaction.
func isStatement(line string) bool { return strings.Contains(line, ": query=") }

// Config returns the configuration that opens the databases of s again, in this process or in
// another. The embedded setup can be opened again only after s.Close.
func Config(s *storage.Stores) storage.Config { return originOf(s).cfg }

// Queries returns how many SQL statements have gone through s.DB so far. It counts statements in
// transactions, but not BEGIN and COMMIT.
func Queries(s *storage.Stores) int { return int(originOf(s).queries.Load()) }

// CountQueries starts to count. The returned function returns how many SQL statements have gone
// through s.DB since then.
func CountQueries(s *storage.Stores) func() int {
	start := Queries(s)
	return func() int { return Queries(s) - start }
}

// Wipe empties all Redis masters of s, like FLUSHALL.
func Wipe(t testing.TB, s *storage.Stores) {
	t.Helper()
	require.NoError(t, flush(t.Context(), s.Redis))
}

func flush(ctx context.Context, rdb redisclient.Client) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			return c.FlushAll(ctx).Err()
		})
	}
	return rdb.FlushAll(ctx).Err()
}

// Missing skips a test whose program is not installed, or fails it if TIDELINE_TEST_REQUIRE_REAL is 1. The error
// says what is missing.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("the real program is required here: %v", err)
	}
	t.Skipf("SKIPPED, NOT TESTED WITH THE REAL PROGRAM: %v", err)
}

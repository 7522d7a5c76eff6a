// Package storagetest gives tests real databases.
//
// It starts PostgreSQL, redis-server and a Redis Cluster when a test first asks for
// them, on free ports, in temporary directories, also as root.
//
// Invariants:
//
//   - Every test gets stores of its own, empty and migrated, so that tests may
//     be parallel. (The cluster is the exception: one for the test binary, and
//     one test at a time.)
//   - Nothing outlives the test binary: [Main] stops the servers, and where the
//     operating system can, a killed test binary takes its servers along.
//
// A test that needs a program which is not installed is skipped and says so;
// with TIDELINE_TEST_REQUIRE_REAL=1 it fails instead. The package does not speed up
// time, and fakes nothing: the embedded setup is that of the product.
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
	"tideline/storage"
)

// Main runs the tests, stops the servers that they started, and exits. If the tests
// passed, the checks run before it exits; an error of one fails the run. They are
// meant for leak detectors, which then find nothing of this package.
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

// LeftOut reports whether this run leaves out a package whose tests take minutes, because
// they start whole installations and break them: runs with -short do, such as "make test".
// It is the first call of such a package's TestMain, which then returns.
func LeftOut() bool {
	flag.Parse()
	return testing.Short()
}

// Long leaves a test out of runs with -short, such as "make test": one that takes seconds and shows
// what only a change close to it could break. "make check" runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: it takes long")
	}
}

// Each runs fn twice, as the subtests "sqlite+embedded" and "postgres+redis",
// each on empty, migrated stores of its own that are closed when it ends.
// The subtests run one after the other; call t.Parallel before Each to run
// beside other tests.
//
// Runs with -short have one of the two, which the test's name chooses: half of the tests
// are for each.
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

// EachRedis runs fn three times, as the subtests "embedded", "redis" and
// "cluster", each on an empty Redis.
func EachRedis(t *testing.T, fn func(t *testing.T, rdb redis.UniversalClient, sharded bool)) {
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
	// Commits are not durable: the databases end with the tests.
	cfg := storage.Config{DataDir: t.TempDir(), SQLiteSync: "normal"}
	require.NoError(t, os.WriteFile(filepath.Join(cfg.DataDir, sqliteFile), migrated, 0o600))
	return Open(t, cfg)
}

// sqliteFile is the database in a data directory.
const sqliteFile = "tideline.db"

// migratedSQLite is the file of a migrated database without rows.
var migratedSQLite = sync.OnceValues(func() ([]byte, error) {
	dir, err := newDir("sqlite")
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // all tests share the file, so no test's context fits
	s, err := storage.Open(ctx, storage.Config{DataDir: dir, SQLiteSync: "normal"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Migrate(ctx), s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, sqliteFile))
})

// Real returns migrated stores on a new PostgreSQL database and a redis-server
// of their own. It skips the test when either is not installed.
func Real(t testing.TB) *storage.Stores {
	t.Helper()
	return Open(t, storage.Config{DatabaseURL: PostgresURL(t), RedisURL: StartRedis(t).URL()})
}

// Open opens cfg as it is, without migrating, and closes it at the end of the
// test. [Config] and [Queries] know the stores that it returns.
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

// opened has the *origin of every *storage.Stores that a test has open.
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

// isStatement reports whether a line of ent's debug driver is about a statement,
// and not about the begin or the end of a transaction.
func isStatement(line string) bool { return strings.Contains(line, ": query=") }

// Config returns the configuration that opens the databases of s again, in this
// process or in another one. The embedded setup can only be opened after s.Close.
func Config(s *storage.Stores) storage.Config { return originOf(s).cfg }

// Queries returns how many SQL statements have gone through s.DB so far, those
// in transactions included, BEGIN and COMMIT not.
func Queries(s *storage.Stores) int { return int(originOf(s).queries.Load()) }

// CountQueries starts to count. The function that it returns says how many SQL
// statements have gone through s.DB since then.
func CountQueries(s *storage.Stores) func() int {
	start := Queries(s)
	return func() int { return Queries(s) - start }
}

// Wipe empties the Redis of s, all masters of it, as FLUSHALL does.
func Wipe(t testing.TB, s *storage.Stores) {
	t.Helper()
	require.NoError(t, flush(t.Context(), s.Redis))
}

func flush(ctx context.Context, rdb redis.UniversalClient) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			return c.FlushAll(ctx).Err()
		})
	}
	return rdb.FlushAll(ctx).Err()
}

// missing skips the test, or fails it where the real servers are required.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("TIDELINE_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("a real server is required here: %v", err)
	}
	t.Skipf("SKIPPED, NOT TESTED ON THE REAL SERVER: %v", err)
}

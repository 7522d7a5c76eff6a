package storage_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tideline/ent"
	"tideline/internal/redisclient"
	"tideline/storage"
	"tideline/storage/storagetest"
)

var discard = slog.New(slog.DiscardHandler)

func addUser(t *testing.T, s *storage.Stores, id int64) {
	t.Helper()
	require.NoError(t, createUser(t.Context(), s.DB.User, id))
}

func createUser(ctx context.Context, users *ent.UserClient, id int64) error {
	return users.Create().SetID(id).SetHandle(fmt.Sprintf("user%d", id)).SetPasswordHash("-").Exec(ctx)
}

func TestStoresAreEmptyMigratedAndAnswer(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		require.NoError(t, s.Ping(t.Context()))
		pending, err := s.Pending(t.Context())
		require.NoError(t, err)
		assert.Empty(t, pending.Pending)
		assert.Zero(t, s.DB.User.Query().CountX(t.Context()))
		assert.Zero(t, s.Redis.DBSize(t.Context()).Val())
		addUser(t, s, 1)
		require.NoError(t, s.Redis.Set(t.Context(), "k", 1, 0).Err())
		storagetest.Wipe(t, s)
		assert.Zero(t, s.Redis.DBSize(t.Context()).Val())
	})
}

func TestQueriesAreCounted(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		count := storagetest.CountQueries(s)
		addUser(t, s, 1)
		assert.Equal(t, 1, count())
		tx, err := s.DB.Tx(t.Context())
		require.NoError(t, err)
		require.NoError(t, createUser(t.Context(), tx.User, 2))
		assert.Equal(t, 2, tx.User.Query().CountX(t.Context()))
		require.NoError(t, tx.Commit())
		assert.Equal(t, 3, count())
	})
}

func TestDataOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]func(t *testing.T) storage.Config{
		"sqlite": func(t *testing.T) storage.Config {
			return storage.Config{DataDir: filepath.Join(t.TempDir(), "a%20b?c #d")}
		},
		"postgres": func(t *testing.T) storage.Config {
			return storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.PostgresURL(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg(t)
			s, err := storage.Open(t.Context(), cfg, discard)
			require.NoError(t, err)
			require.NoError(t, s.Migrate(t.Context()))
			addUser(t, s, 7)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close(), "a second time")

			s = storagetest.Open(t, cfg)
			require.NoError(t, s.Migrate(t.Context()))
			assert.Equal(t, "user7", s.DB.User.GetX(t.Context(), 7).Handle)
		})
	}
}

func TestTheDataDirectoryIsItsOwners(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	storagetest.Open(t, storage.Config{DataDir: dir})
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	assert.FileExists(t, filepath.Join(dir, "tideline.db"))
}

func TestASecondEmbeddedProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := storage.Open(t.Context(), storage.Config{DataDir: dir}, discard)
	require.NoError(t, err)
	_, err = storage.Open(t.Context(), storage.Config{DataDir: dir}, discard)
	require.ErrorContains(t, err, fmt.Sprintf("data directory %s is in use by another Tideline (process %d)", dir, os.Getpid()))
	require.NoError(t, first.Ping(t.Context()), "the first one goes on")
	require.NoError(t, first.Close())
	storagetest.Open(t, storage.Config{DataDir: dir})
}

// holdEnv makes TestHoldADataDirectory, run as a separate process, hold a data directory until it
// is killed.
const holdEnv = "STORAGE_TEST_HOLD"

func TestHoldADataDirectory(t *testing.T) {
	dir := os.Getenv(holdEnv)
	if dir == "" {
		return // the test below runs this as a separate process
	}
	_, err := storage.Open(t.Context(), storage.Config{DataDir: dir}, discard)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "held"), nil, 0o600))
	select {}
}

func TestADeadProcessHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	holder := exec.CommandContext(t.Context(), self, "-test.run=^TestHoldADataDirectory$")
	holder.Env = append(os.Environ(), holdEnv+"="+dir)
	require.NoError(t, holder.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "held"))
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	_, err = storage.Open(t.Context(), storage.Config{DataDir: dir}, discard)
	require.ErrorContains(t, err, fmt.Sprintf("(process %d)", holder.Process.Pid))

	require.NoError(t, holder.Process.Kill())
	_ = holder.Wait()
	storagetest.Open(t, storage.Config{DataDir: dir})
}

func TestProcessesShareADatabaseThroughARedisServer(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir(), RedisURL: storagetest.StartRedis(t).URL()}
	one, two := storagetest.Open(t, cfg), storagetest.Open(t, cfg)
	require.NoError(t, one.Migrate(t.Context()))
	addUser(t, one, 1)
	addUser(t, two, 2)
	assert.Equal(t, 2, one.DB.User.Query().CountX(t.Context()))
	require.NoError(t, one.Redis.Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", two.Redis.Get(t.Context(), "k").Val())
}

func TestProcessesMigrateInTurns(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]func(t *testing.T) storage.Config{
		"sqlite": func(t *testing.T) storage.Config { return storage.Config{DataDir: t.TempDir()} },
		"postgres": func(t *testing.T) storage.Config {
			return storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.EmptyPostgresURL(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg(t)
			cfg.RedisURL = storagetest.StartRedis(t).URL()
			pending, err := storagetest.Open(t, cfg).Pending(t.Context())
			require.NoError(t, err)
			assert.True(t, pending.Fresh)
			assert.NotEmpty(t, pending.Pending)
			var group errgroup.Group
			for range 3 {
				s := storagetest.Open(t, cfg)
				group.Go(func() error { return s.Migrate(t.Context()) })
			}
			require.NoError(t, group.Wait())
			addUser(t, storagetest.Open(t, cfg), 1)
		})
	}
}

// Eight transactions that read before they write, as the counters do, get "busy" errors from SQLite
// unless they queue when they begin.
func TestConcurrentWritersAllGetTheirTurn(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		const writers, each = 8, 25
		addUser(t, s, 1)
		var group errgroup.Group
		for range writers {
			group.Go(func() error {
				for range each {
					if err := countPost(t.Context(), s); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		assert.Equal(t, writers*each, s.DB.User.GetX(t.Context(), 1).PostCount)
	})
}

// A writer waits for another writer, in this process or in another, until its context is done, and
// not longer.
func TestWaitingForALockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		addUser(t, s, 1)
		other := storagetest.Config(s)
		other.RedisURL = storagetest.StartRedis(t).URL()
		for name, holder := range map[string]*storage.Stores{
			"the same process": s,
			"another process":  storagetest.Open(t, other),
		} {
			t.Run(name, func(t *testing.T) {
				holds, err := holder.DB.Tx(t.Context())
				require.NoError(t, err)
				require.NoError(t, holds.User.UpdateOneID(1).AddPostCount(1).Exec(t.Context()))
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				var waiting errgroup.Group
				for range 20 { // more than the number of connections
					waiting.Go(func() error {
						err := countPost(ctx, s)
						if err == nil || ctx.Err() == nil {
							return fmt.Errorf("not ended by its context: %w", err)
						}
						return nil
					})
					waiting.Go(func() error {
						_ = s.DB.User.UpdateOneID(1).AddPostCount(1).Exec(ctx)
						return nil
					})
				}
				require.NoError(t, waiting.Wait())
				patient := make(chan error, 1)
				go func() { patient <- countPost(t.Context(), s) }()
				require.NoError(t, holds.Commit())
				require.NoError(t, <-patient)
			})
		}
		assert.Equal(t, 4, s.DB.User.GetX(t.Context(), 1).PostCount)
	})
}

// A connection to SQLite keeps its statements prepared, and each use of a statement is like the first.
func TestPreparedStatementsAreLikeNewOnes(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	conn, err := s.SQL.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	open := func(query string, args ...any) *sql.Rows {
		rows, err := conn.QueryContext(t.Context(), query, args...)
		require.NoError(t, err)
		return rows
	}
	end := func(rows *sql.Rows) { require.NoError(t, rows.Close()) }
	next := func(rows *sql.Rows) (n int) {
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&n))
		return n
	}

	t.Run("one query read twice at once", func(t *testing.T) {
		for range 3 {
			const query = "SELECT value FROM json_each(?)"
			a, b := open(query, "[1,2]"), open(query, "[3,4]")
			require.Equal(t, []int{1, 3, 2, 4}, []int{next(a), next(b), next(a), next(b)})
			end(a)
			c := open(query, "[5]") // after rows that were not read to their end
			require.Equal(t, 5, next(c))
			require.False(t, b.Next())
			end(b)
			end(c)
		}
	})
	t.Run("after a refusal", func(t *testing.T) {
		const insert = "INSERT INTO users (id, handle, password_hash, created_at) VALUES (?, ?, '-', '')"
		for id := range 3 {
			_, err := conn.ExecContext(t.Context(), insert, id, strconv.Itoa(id))
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), insert, id, "another")
			require.ErrorContains(t, err, "UNIQUE")
		}
	})
	t.Run("after another connection changed the table", func(t *testing.T) {
		for columns := 1; columns < 4; columns++ {
			name := fmt.Sprintf("c%d", columns)
			change := "ALTER TABLE changed ADD COLUMN " + name
			if columns == 1 {
				change = "CREATE TABLE changed (c1)"
			}
			_, err := s.SQL.ExecContext(t.Context(), change)
			require.NoError(t, err)
			rows := open("SELECT * FROM changed")
			names, err := rows.Columns()
			require.NoError(t, err)
			require.Len(t, names, columns)
			require.Equal(t, name, names[columns-1])
			end(rows)
		}
	})
	t.Run("more queries than are kept", func(t *testing.T) {
		for range 2 {
			for n := range 500 {
				rows := open(fmt.Sprintf("SELECT %d", n))
				require.Equal(t, n, next(rows))
				end(rows)
			}
		}
	})
}

// However many writers wait for SQLite, readers do not wait with them.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	addUser(t, s, 1)
	holds, err := s.DB.Tx(t.Context())
	require.NoError(t, err)
	defer func() { _ = holds.Rollback() }()
	require.NoError(t, holds.User.UpdateOneID(1).AddPostCount(1).Exec(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var writers errgroup.Group
	var started sync.WaitGroup
	for i := range 50 {
		started.Add(1)
		writers.Go(func() error {
			started.Done()
			switch i % 4 {
			case 0:
				return countPost(ctx, s)
			case 1:
				return createUser(ctx, s.DB.User, int64(i+2))
			case 2:
				return s.DB.Session.Create().SetUserID(1).SetTokenHash([]byte{byte(i)}).SetExpiresAt(time.Now()).Exec(ctx)
			default:
				return s.DB.User.UpdateOneID(1).AddPostCount(1).Exec(ctx)
			}
		})
	}
	started.Wait()
	for range 100 { // gives the writers time to start waiting
		user, err := s.DB.User.Get(t.Context(), 1)
		require.NoError(t, err)
		require.Zero(t, user.PostCount)
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, 1, holds.User.GetX(t.Context(), 1).PostCount, "a transaction sees what it wrote")
	cancel()
	require.ErrorIs(t, writers.Wait(), context.Canceled)
	require.NoError(t, holds.Commit())
	require.Equal(t, 1, s.DB.User.GetX(t.Context(), 1).PostCount)
	require.NoError(t, s.DB.Session.Create().SetUserID(1).SetTokenHash([]byte{1}).SetExpiresAt(time.Now()).Exec(t.Context()))
	require.NoError(t, countPost(t.Context(), s), "nobody has kept the turn")
}

func countPost(ctx context.Context, s *storage.Stores) error {
	tx, err := s.DB.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.User.Get(ctx, 1); err != nil {
		return err
	}
	if err := tx.User.UpdateOneID(1).AddPostCount(1).Exec(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestTimesAreStoredAndComparedInUTC(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) {
		east, west := time.FixedZone("east", 9*3600), time.FixedZone("west", -9*3600)
		at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
		for i, due := range []time.Time{at.Add(-time.Minute).In(east), at.Add(time.Minute).In(west)} {
			s.DB.Job.Create().SetID(int64(i + 1)).SetKind("k").SetPool("p").SetPayload([]byte("{}")).
				SetDueAt(due).ExecX(t.Context())
		}
		var due []int64
		rows, err := s.SQL.QueryContext(t.Context(), "SELECT id FROM jobs WHERE due_at < $1", at.In(west))
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			due = append(due, id)
		}
		require.NoError(t, rows.Err())
		assert.Equal(t, []int64{1}, due)
		assert.True(t, s.DB.Job.GetX(t.Context(), 1).DueAt.Equal(at.Add(-time.Minute)))
	})
}

func TestRedisKindsAreToldApart(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	kinds := map[string]bool{}
	storagetest.EachRedis(t, func(t *testing.T, rdb redisclient.Client, sharded bool) {
		_, isCluster := rdb.(*redis.ClusterClient)
		assert.Equal(t, isCluster, sharded)
		mu.Lock()
		kinds[t.Name()] = sharded
		mu.Unlock()
		// The keys cover all slots.
		pipe := rdb.Pipeline()
		for i := range 1000 {
			pipe.Set(t.Context(), fmt.Sprintf("k%d", i), i, time.Minute)
		}
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "999", rdb.Get(t.Context(), "k999").Val())
	})
	for name, sharded := range kinds {
		assert.Equal(t, strings.HasSuffix(name, "/cluster"), sharded, name)
	}
}

func TestOneAddressOfAClusterIsEnough(t *testing.T) {
	t.Parallel()
	url, _, _ := strings.Cut(storagetest.ClusterURL(t), ",")
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: url + "?pool_size=3"})
	assert.True(t, s.Sharded)
	dead := strings.Replace(storagetest.Config(s).RedisURL, "redis://", "redis://127.0.0.1:1,", 1)
	s = storagetest.Open(t, storage.Config{DataDir: t.TempDir(), RedisURL: dead})
	assert.True(t, s.Sharded, "the second address answers")

	_, err := storage.Open(t.Context(), storage.Config{DataDir: t.TempDir(), RedisURL: url + "/3"}, discard)
	require.ErrorContains(t, err, "a Redis Cluster has no database 3")
}

func TestSeveralAddressesMustBeACluster(t *testing.T) {
	t.Parallel()
	r := storagetest.StartRedis(t)
	_, err := storage.Open(t.Context(), storage.Config{DataDir: t.TempDir(), RedisURL: r.URL() + "?addr=other:1"}, discard)
	require.ErrorContains(t, err, "several addresses are for a Redis Cluster")
}

func TestAServerThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	s := storagetest.Real(t)
	server := storagetest.Redis(t, s)
	server.Kill()
	require.ErrorContains(t, s.Ping(t.Context()), "Redis does not answer")
	server.Start(t)
	require.NoError(t, s.Ping(t.Context()))
	server.Restart(t)
	require.NoError(t, s.Ping(t.Context()))
}

func TestUnreachableServersAreNamed(t *testing.T) {
	t.Parallel()
	const password = "s3cret"
	for name, tt := range map[string]struct {
		cfg  storage.Config
		want []string
	}{
		"postgres": {
			storage.Config{DatabaseURL: "postgres://u:" + password + "@127.0.0.1:1/db"},
			[]string{"PostgreSQL does not answer", "127.0.0.1"},
		},
		"redis": {
			storage.Config{RedisURL: "redis://u:" + password + "@127.0.0.1:1"},
			[]string{"Redis at 127.0.0.1:1 does not answer"},
		},
		"cluster": {
			storage.Config{RedisURL: "redis://u:" + password + "@127.0.0.1:1,127.0.0.1:2"},
			[]string{"127.0.0.1:1", "127.0.0.1:2"},
		},
		"sqlite": {
			storage.Config{DatabaseURL: "sqlite:///dev/null/x.db"},
			[]string{"/dev/null"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.cfg.DataDir = t.TempDir()
			_, err := storage.Open(t.Context(), tt.cfg, discard)
			require.Error(t, err)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
			assert.NotContains(t, err.Error(), password)
			s := storagetest.Open(t, storage.Config{DataDir: tt.cfg.DataDir})
			require.NoError(t, s.Ping(t.Context()), "nothing stayed locked")
		})
	}
}

// Creating the tables of an empty database is one line in the log. At level debug, each migration
// has its own line.
func TestMigrationsAreLogged(t *testing.T) {
	t.Parallel()
	var log, all bytes.Buffer
	fresh, err := storage.Open(t.Context(), storage.Config{DataDir: t.TempDir()}, slog.New(slog.NewTextHandler(&all, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	defer fresh.Close()
	require.NoError(t, fresh.Migrate(t.Context()))
	assert.Contains(t, all.String(), "msg=migrated version=")
	s, err := storage.Open(t.Context(), storage.Config{DataDir: t.TempDir()}, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	assert.Contains(t, log.String(), "makes the tables")
	log.Reset()
	require.NoError(t, s.Migrate(t.Context()))
	assert.Empty(t, log.String())
	assert.Equal(t, dialect.SQLite, s.Dialect)
}

// An acknowledged commit survives a power failure, on every connection of the pool, unless the
// setting or the URL says otherwise.
func TestSQLiteCommitsAreDurable(t *testing.T) {
	t.Parallel()
	const normal, full = 1, 2
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		cfg  storage.Config
		want int
	}{
		"by default":    {storage.Config{DataDir: dir}, full},
		"as it is set":  {storage.Config{DataDir: dir, SQLiteSync: "full"}, full},
		"unless set":    {storage.Config{DataDir: dir, SQLiteSync: "normal"}, normal},
		"of the URL":    {storage.Config{DataDir: dir, DatabaseURL: "sqlite://" + dir + "/x.db"}, full},
		"as in the URL": {storage.Config{DataDir: dir, DatabaseURL: "sqlite://" + dir + "/x.db?_pragma=synchronous(NORMAL)"}, normal},
	} {
		t.Run(name, func(t *testing.T) {
			s := storagetest.Open(t, tt.cfg)
			for range 3 {
				conn, err := s.SQL.Conn(t.Context()) // a new connection each time
				require.NoError(t, err)
				defer conn.Close()
				var got int
				require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&got))
				assert.Equal(t, tt.want, got)
			}
		})
	}
}

// BenchmarkSQLiteCommit compares commits that survive a power failure with commits that may not.
func BenchmarkSQLiteCommit(b *testing.B) {
	for _, sync := range []string{"full", "normal"} {
		b.Run(sync, func(b *testing.B) {
			s := storagetest.Open(b, storage.Config{DataDir: b.TempDir(), SQLiteSync: sync})
			require.NoError(b, s.Migrate(b.Context()))
			require.NoError(b, createUser(b.Context(), s.DB.User, 1))
			for b.Loop() {
				require.NoError(b, countPost(b.Context(), s))
			}
		})
	}
}

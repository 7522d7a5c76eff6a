// Package storage hides the database drivers: which database answers SQL and which server answers
// Redis, and how each is opened, tuned, migrated and closed.
//
// Invariants:
//
//   - No package of a server outside this directory imports a driver. Two URLs choose SQLite or PostgreSQL, and the in-process
//     Redis, Redis or Redis Cluster. The rest of Tideline sees an ent client and a go-redis client.
//   - With the in-process Redis, at most one process owns a data directory. A second process is
//     refused, or joins the first as a command does. The operating system releases the lock when a
//     process dies.
//   - Messages name hosts and paths, never passwords.
//   - Every wait for a server is bounded: for a connection, for an answer, and for the other end of
//     a connection that has vanished.
//
// The package does not retry: if a server cannot be reached, [Open] fails. It does not know what is
// stored: ent owns the tables, and other packages own the keys.
package storage

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"tideline/ent"
	"tideline/internal/redisclient"
	"tideline/internal/trace"
)

// Stores are the open connections of one process. They are safe for concurrent use.
type Stores struct {
	// DB is the typed client for the tables.
	DB *ent.Client
	// Driver executes the statements of DB. A test may wrap it to observe statements or make them
	// fail.
	Driver dialect.Driver
	// SQL is the pool under Driver, for statements that ent cannot express. On SQLite, a write
	// through it does not queue with the writes of DB; it retries until the file is unlocked.
	SQL *sql.DB
	// Dialect is dialect.SQLite or dialect.Postgres.
	Dialect string
	// Redis is a *redis.Client, or a *redis.ClusterClient if Sharded is true.
	Redis redisclient.Client
	// Sharded reports that Redis is a Redis Cluster. The keys of one command must share a slot, and
	// pub/sub should be sharded pub/sub.
	Sharded bool
	// Embedded reports that Redis runs in this process and ends with it.
	Embedded bool
	// Pooled reports that a pooler such as PgBouncer is between this process and PostgreSQL. Each
	// transaction may then run in another session.
	Pooled bool
	// HidesIncarnation reports that a Redis master does not tell the incarnation of its data. A
	// feed that was rolled back then looks current. Open refuses such a Redis unless
	// Config.RedisIncarnation allows it.
	HidesIncarnation bool

	log      *slog.Logger
	path     string // path of the SQLite file; empty for PostgreSQL
	postgres *pgx.ConnConfig
	closers  []func() error
}

// Open connects to the databases of cfg. It creates a missing data directory and SQLite file, and
// does not migrate. It fails if cfg is invalid, another process uses the data directory, or a
// server does not answer; nothing is left open then.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Stores, error) {
	return open(ctx, cfg, log, access{create: true, embed: true, redis: true})
}

// OpenBeside is Open for a process that inspects the stores of another process. It creates nothing
// and does not lock the data directory. It cannot reach a Redis inside the other process;
// Stores.Redis is nil then. Errors: the errors of Open; ErrNoDatabase.
func OpenBeside(ctx context.Context, cfg Config, log *slog.Logger) (*Stores, error) {
	return open(ctx, cfg, log, access{redis: true})
}

// OpenSQL is OpenBeside without Redis. Stores.Redis is nil, and Redis need not answer.
func OpenSQL(ctx context.Context, cfg Config, log *slog.Logger) (*Stores, error) {
	return open(ctx, cfg, log, access{})
}

// MakeSQL is OpenSQL, but creates a missing SQLite file.
func MakeSQL(ctx context.Context, cfg Config, log *slog.Logger) (*Stores, error) {
	return open(ctx, cfg, log, access{create: true})
}

// ErrNoDatabase means that the configured SQLite file does not exist.
var ErrNoDatabase = errors.New("there is no database yet")

// Exists returns ErrNoDatabase if the configuration, which must be valid, names a SQLite file that
// does not exist. It contacts no server.
func (c Config) Exists() error {
	t, err := parse(c)
	if err != nil {
		return err
	}
	return t.exists()
}

func (t target) exists() error {
	if t.sqlite == nil {
		return nil
	}
	_, err := os.Stat(t.sqlite.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w. 'tideline serve' and 'tideline migrate' make it; to use the database of running servers, give their settings, such as TIDELINE_DATABASE_URL", ErrNoDatabase, err)
	}
	return err
}

// access says how a process uses the stores.
type access struct {
	create bool // create a missing SQLite file
	embed  bool // run Redis in this process if the configuration names none
	redis  bool // use the Redis that the configuration names
}

func open(ctx context.Context, cfg Config, log *slog.Logger, a access) (_ *Stores, err error) {
	target, err := parse(cfg)
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	if !a.create {
		if err := target.exists(); err != nil {
			return nil, fmt.Errorf("open storage: %w", err)
		}
	}
	s := &Stores{log: log, Embedded: a.embed && target.redis == nil}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open storage: %w", err), s.Close())
		}
	}()

	if s.Embedded {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		lock, err := takeLock(filepath.Join(cfg.DataDir, lockName))
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, lock.Close)
	}
	if err := openSQL(ctx, s, target, cfg.StatementTimeout); err != nil {
		return nil, err
	}
	s.DB = ent.NewClient(ent.Driver(s.Driver))
	if !s.Embedded && (!a.redis || target.redis == nil) {
		return s, nil
	}
	if err := openRedis(ctx, s, target, cfg.DataDir); err != nil {
		return nil, err
	}
	if err := s.checkServers(ctx, cfg.RedisIncarnation); err != nil {
		return nil, err
	}
	s.Redis.AddHook(trace.Commands{})
	return s, nil
}

func openSQL(ctx context.Context, s *Stores, t target, timeout time.Duration) error {
	if t.postgres != nil {
		if err := s.adaptToPooler(ctx, t.postgres); err != nil {
			return err
		}
		if s.Pooled {
			s.log.InfoContext(ctx, "PostgreSQL is reached through a pooler: statements are not prepared, and sessions have the settings of their role")
		}
		s.Dialect, s.SQL = dialect.Postgres, openPostgres(t.postgres.Copy(), cmp.Or(timeout, statementTimeout), 0, s.Pooled)
		s.postgres = t.postgres
		s.Driver = entsql.OpenDB(s.Dialect, s.SQL)
	} else {
		s.Dialect, s.path = dialect.SQLite, t.sqlite.path
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return fmt.Errorf("directory of the SQLite file: %w", err)
		}
		connector, err := newSQLiteConnector(t.sqlite.dsn)
		if err != nil {
			return fmt.Errorf("SQLite file %s: %w", s.path, err)
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(sqliteConns)
		db.SetMaxIdleConns(sqliteConns)
		s.SQL, s.Driver = db, newSQLiteDriver(db)
	}
	s.closers = append(s.closers, s.SQL.Close)
	if err := s.pingSQL(ctx); err != nil {
		return err
	}
	return nil
}

func openRedis(ctx context.Context, s *Stores, t target, dataDir string) error {
	redisLog.Do(func() { redis.SetLogger(redisLogger{s.log}) })
	if s.Embedded {
		e := startEmbedded()
		if err := e.letIn(socketPath(dataDir)); err != nil {
			s.log.WarnContext(ctx, "commands of other processes cannot use the Redis inside this one", "error", err)
		}
		s.Redis = e.client()
		// Closers run last to first: the client closes before the server.
		s.closers = append(s.closers, e.close, s.Redis.Close)
		return s.pingRedis(ctx)
	}
	rdb, sharded, err := dialRedis(ctx, t.redis)
	if err != nil {
		return err
	}
	s.Redis, s.Sharded = rdb, sharded
	s.closers = append(s.closers, rdb.Close)
	return nil
}

// Ping checks that both databases answer. The error names those that do not.
//
// Cost: one round trip to each.
func (s *Stores) Ping(ctx context.Context) error {
	return errors.Join(s.pingSQL(ctx), s.pingRedis(ctx))
}

func (s *Stores) pingSQL(ctx context.Context) error {
	err := s.SQL.PingContext(ctx)
	switch {
	case err == nil:
		return nil
	case s.Dialect == dialect.SQLite:
		return fmt.Errorf("SQLite file %s: %w", s.path, err)
	default:
		return postgresSilent(err)
	}
}

func (s *Stores) pingRedis(ctx context.Context) error {
	if err := s.Redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("Redis does not answer: %w", err)
	}
	return nil
}

// Close releases everything in the opposite order of opening. A second call has no effect.
func (s *Stores) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

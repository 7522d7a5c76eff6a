package migration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"tideline/internal/clock"
)

// Defaults of Options.
const (
	DefaultLockTimeout = 2 * time.Second
	DefaultPatience    = 10 * time.Minute
)

// turnTries is how many seconds a process waits for the migrations of another process.
const turnTries = 600

// Options select the migrations and bound the waits. The zero value selects Expand.
type Options struct {
	// Phase defaults to Expand.
	Phase Phase
	// LockTimeout is how long a statement queues for a PostgreSQL lock before it gives way.
	// Statements that block nothing, such as CREATE INDEX CONCURRENTLY, wait without limit.
	// Defaults to DefaultLockTimeout.
	LockTimeout time.Duration
	// Patience is how long a migration keeps trying to get its locks. Defaults to DefaultPatience.
	Patience time.Duration
}

// LockWait returns LockTimeout or its default.
func (o Options) LockWait() time.Duration { return orDefault(o.LockTimeout, DefaultLockTimeout) }

// ErrExpandFirst means that expanding migrations are pending, which must be applied before
// contracting ones.
var ErrExpandFirst = errors.New("migrations that expand are pending: apply them first, by 'tideline migrate --phase=expand'")

// Pools are connections to the database of a dialect. On PostgreSQL, sessions of Impatient wait for
// a lock for at most Options.LockTimeout, and sessions of Patient do not give way. On SQLite both
// are the same pool, and the caller holds the migration lock.
type Pools struct {
	Dialect            string
	Patient, Impatient *sql.DB
}

// Apply applies the pending migrations of a phase, or all migrations on an empty database, and
// returns them in order. Errors: ErrExpandFirst; ErrTooOld; a lock that was not available in time;
// an error of the database. Migrations applied before the error remain.
//
// Cost: two queries if nothing is pending, otherwise the cost of the migrations.
func Apply(ctx context.Context, p Pools, o Options, log *slog.Logger) (_ []Migration, err error) {
	wanted, fresh, err := p.wanted(ctx, o)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	if p.Dialect == dialect.Postgres {
		end, err := p.takeTurn(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
		if wanted, fresh, err = p.wanted(ctx, o); err != nil { // another process may have migrated meanwhile
			return nil, err
		}
	}
	folder, err := fs.Sub(files, folderOf(p.Dialect))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	level := slog.LevelInfo
	if fresh {
		level = slog.LevelDebug
		log.InfoContext(ctx, "makes the tables", "migrations", len(wanted))
	}
	for i, m := range wanted {
		log.Log(ctx, level, "migrates", "version", m.Version, "name", m.Name, "phase", m.Phase)
		began := time.Now()
		if err := p.apply(ctx, m, folder, o, log); err != nil {
			return wanted[:i], fmt.Errorf("migrate: %w", err)
		}
		log.Log(ctx, level, "migrated", "version", m.Version, "name", m.Name, "phase", m.Phase, "duration", time.Since(began))
	}
	return wanted, nil
}

func (p Pools) wanted(ctx context.Context, o Options) (list []Migration, fresh bool, err error) {
	plan, err := Lacks(ctx, p.Patient, p.Dialect)
	switch {
	case err != nil:
		return nil, false, err
	case plan.Fresh:
		return plan.Pending, true, nil
	case o.Phase != Contract:
		return plan.Of(Expand), false, nil
	case len(plan.Of(Expand)) > 0:
		return nil, false, ErrExpandFirst
	}
	return plan.Of(Contract), false, nil
}

// takeTurn waits until no other process migrates. The caller must call end.
func (p Pools) takeTurn(ctx context.Context) (end func(), err error) {
	turn, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, turnTries))
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	conn, err := p.Patient.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	if err := turn.SessionLock(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the migrations of another process: %w", err), conn.Close())
	}
	return func() {
		if turn.SessionUnlock(context.WithoutCancel(ctx), conn) != nil {
			// Closing the session releases the lock.
			_ = conn.Raw(func(any) error { return errTurnEnds })
		}
		_ = conn.Close()
	}, nil
}

// errTurnEnds makes the pool discard a session.
var errTurnEnds = errors.New("the turn ends with its session")

// apply applies one migration, and retries while a lock is not available.
func (p Pools) apply(ctx context.Context, m Migration, folder fs.FS, o Options, log *slog.Logger) error {
	db := p.Impatient
	if !m.Transaction {
		db = p.Patient // its statements block nothing, and would leave an invalid index if they gave way
	}
	provider, err := goose.NewProvider(gooseDialect(p.Dialect), db, folder,
		goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true))
	if err != nil {
		return err
	}
	pause, until := o.LockWait(), time.Now().Add(orDefault(o.Patience, DefaultPatience))
	for {
		_, err := provider.ApplyVersion(ctx, m.Version, true)
		if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != lockNotAvailable {
			return err
		}
		holder := p.holder(ctx, m)
		if time.Now().Add(pause).After(until) {
			return fmt.Errorf("%d_%s was not to have its locks, and has changed nothing: %s. End that transaction, or wait for its end, and run it again: %w",
				m.Version, m.Name, holder, err)
		}
		log.WarnContext(ctx, "a migration gives way, for others would wait behind it; it tries again",
			"version", m.Version, "name", m.Name, "after", pause, "because", holder)
		if err := clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// lockNotAvailable is PostgreSQL's error code for a lock timeout.
const lockNotAvailable = "55P03"

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// holder describes the oldest transaction that holds a lock on a table of the migration.
func (p Pools) holder(ctx context.Context, m Migration) string {
	var tables []string
	for _, s := range m.Statements {
		for _, e := range s.Effects {
			if e.Table != "" && !slices.Contains(tables, e.Table) {
				tables = append(tables, e.Table)
			}
		}
	}
	var pid, seconds int64
	var table, program, state string
	err := p.Patient.QueryRowContext(ctx, `SELECT a.pid, c.relname, coalesce(a.application_name, ''), coalesce(a.state, ''), extract(epoch FROM now() - a.xact_start)::bigint
		FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND a.xact_start IS NOT NULL AND c.relname = ANY($1::text[]) AND a.pid <> pg_backend_pid()
		ORDER BY a.xact_start LIMIT 1`, tables).Scan(&pid, &table, &program, &state, &seconds)
	if err != nil {
		return "another transaction had a lock on " + strings.Join(tables, ", ")
	}
	return fmt.Sprintf("process %d of PostgreSQL (%s, %s), whose transaction began %s ago, has a lock on %s", pid, program, state,
		time.Duration(seconds)*time.Second, table)
}

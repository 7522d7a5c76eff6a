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
)

// Defaults of Options.
const (
	DefaultLockTimeout = 2 * time.Second
	DefaultPatience    = 10 * time.Minute
)

// turnTries is how many seconds a process waits for the migrations of another one.
const turnTries = 600

// Options say what to apply, and how to wait. The zero value expands.
type Options struct {
	// Phase defaults to Expand.
	Phase Phase
	// LockTimeout is how long a statement queues for a lock of PostgreSQL before it gives
	// way. Statements that block nobody, such as CREATE INDEX CONCURRENTLY, wait as long
	// as it takes. Defaults to DefaultLockTimeout.
	LockTimeout time.Duration
	// Patience is how long a migration tries to get its locks. Defaults to
	// DefaultPatience.
	Patience time.Duration
}

// LockWait is LockTimeout, or its default.
func (o Options) LockWait() time.Duration { return orDefault(o.LockTimeout, DefaultLockTimeout) }

// ErrExpandFirst says that migrations that expand are pending, and those that contract
// come after them.
var ErrExpandFirst = errors.New("migrations that expand are pending: apply them first, by 'tideline migrate --phase=expand'")

// Pools are connections to the database of a dialect. Where Dialect is PostgreSQL, a
// session of Impatient waits for locks for Options.LockTimeout at most; one of Patient does
// not give way. On SQLite they are one pool, and the caller has the turn.
type Pools struct {
	Dialect            string
	Patient, Impatient *sql.DB
}

// Apply applies the migrations of a phase that are pending, all of them where there were no
// tables, and returns them in their order. Errors: ErrExpandFirst; ErrTooOld; a lock that was not to be
// had in time; what the database refuses. What was applied before the error stays.
//
// Cost: two queries when nothing is pending, otherwise that of the migrations.
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
		if wanted, fresh, err = p.wanted(ctx, o); err != nil { // another process may have done it meanwhile
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

// takeTurn waits until no other process migrates. The caller ends the turn.
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
			// The lock ends with the session.
			_ = conn.Raw(func(any) error { return errTurnEnds })
		}
		_ = conn.Close()
	}, nil
}

// errTurnEnds has a pool drop a session.
var errTurnEnds = errors.New("the turn ends with its session")

// apply applies one migration. It tries again while a lock is not to be had.
func (p Pools) apply(ctx context.Context, m Migration, folder fs.FS, o Options, log *slog.Logger) error {
	db := p.Impatient
	if !m.Transaction {
		db = p.Patient // its statements block nobody, and leave half an index when they give way
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// lockNotAvailable is the code of PostgreSQL for a lock that was waited for too long.
const lockNotAvailable = "55P03"

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// holder says which transaction has had a lock for the longest on what the migration
// changes.
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

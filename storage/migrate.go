package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"entgo.io/ent/dialect"

	"tideline/storage/migration"
)

// migrationTimeout bounds all migrations of one run.
const migrationTimeout = 24 * time.Hour

// Migrate brings the tables to where this program can use them, beside processes of the
// version before: it expands. Each migration is one transaction, or can be repeated: after
// an interrupted run the next one goes on. It is safe when several processes start at once:
// they take turns. Where there were no tables it applies all migrations.
//
// Cost: that of the migrations that are missing; two queries when none is.
func (s *Stores) Migrate(ctx context.Context) error {
	_, err := s.Apply(ctx, migration.Options{})
	return err
}

// Apply is Migrate for either phase. It returns the migrations that it applied, in their
// order: none when there was nothing to do. Errors: as of migration.Apply.
func (s *Stores) Apply(ctx context.Context, o migration.Options) ([]migration.Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	pools := migration.Pools{Dialect: s.Dialect, Patient: s.SQL, Impatient: s.SQL}
	if s.Dialect == dialect.SQLite {
		lock, err := awaitLock(ctx, s.path+".migrate.lock")
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		defer lock.Close()
	} else {
		if s.Pooled {
			return nil, s.migratedDirectly(ctx, o)
		}
		pools.Impatient = openPostgres(s.postgres.Copy(), statementTimeout, o.LockWait(), false)
		defer pools.Impatient.Close()
	}
	return migration.Apply(ctx, pools, o, s.log)
}

// migratedDirectly is an error if something is to be applied: processes take turns by a
// lock of the session, and behind a pooler a session is not one's own.
func (s *Stores) migratedDirectly(ctx context.Context, o migration.Options) error {
	plan, err := s.Pending(ctx)
	if err != nil {
		return err
	}
	if plan.Fresh || len(plan.Of(migration.Expand)) > 0 || o.Phase == migration.Contract && len(plan.Of(migration.Contract)) > 0 {
		return errors.New("migrate: a pooler such as PgBouncer is between this process and PostgreSQL, and migrations need a session of their own: run 'tideline migrate' with a database URL that leads to PostgreSQL itself")
	}
	return nil
}

// Pending returns what the tables lack.
//
// Cost: two queries.
func (s *Stores) Pending(ctx context.Context) (migration.Plan, error) {
	return migration.Lacks(ctx, s.SQL, s.Dialect)
}

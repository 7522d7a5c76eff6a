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

// Migrate applies the pending migrations of phase Expand, which processes of the previous version
// tolerate. On an empty database it applies all migrations. A migration is one transaction, or can be
// repeated, so after an interruption the next run continues. Processes that start at the same time
// take turns.
//
// Cost: the cost of the pending migrations; two queries if there are none.
func (s *Stores) Migrate(ctx context.Context) error {
	_, err := s.Apply(ctx, migration.Options{})
	return err
}

// Apply does what Migrate does, for the phase in o. It returns the migrations that it applied, in
// order. Errors: the errors of migration.Apply.
func (s *Stores) Apply(ctx context.Context, o migration.Options) ([]migration.Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	// On PostgreSQL, Impatient is a second pool that waits for a lock only as long as o allows.
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

// migratedDirectly returns an error if migrations are pending, because they cannot run through a
// pooler: a migration needs a session lock, and behind a pooler a process has no session of its own.
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

// Pending returns the migrations that the database lacks.
//
// Cost: two queries.
func (s *Stores) Pending(ctx context.Context) (migration.Plan, error) {
	return migration.Lacks(ctx, s.SQL, s.Dialect)
}

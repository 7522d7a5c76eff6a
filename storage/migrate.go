package storage

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"entgo.io/ent/dialect"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"tideline/ent/migrate/migrations"
)

// migrationLockTries is how many seconds a process waits for the migration of
// another one.
const migrationLockTries = 600

// migrationTimeout bounds all migrations of one run.
const migrationTimeout = 24 * time.Hour

// Migrate brings the tables to the version that this program was built for. Each
// migration is one transaction: after an interrupted run the next one goes on.
// It is safe when several processes start at once: they take turns.
//
// Cost: that of the migrations that are missing; one query when none is.
func (s *Stores) Migrate(ctx context.Context) error {
	_, err := s.Apply(ctx)
	return err
}

// Apply is Migrate, and returns the versions of the migrations that it applied, in
// their order: none when the tables were up to date.
func (s *Stores) Apply(ctx context.Context) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	if s.Dialect == dialect.SQLite {
		lock, err := awaitLock(ctx, s.path+".migrate.lock")
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		defer lock.Close()
	}
	p, err := s.migrations()
	if err != nil {
		return nil, err
	}
	results, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	var applied []int64
	for _, r := range results {
		s.log.InfoContext(ctx, "migrated", "version", r.Source.Version, "duration", r.Duration)
		applied = append(applied, r.Source.Version)
	}
	return applied, nil
}

// Pending reports whether Migrate has something to do.
//
// Cost: one query.
func (s *Stores) Pending(ctx context.Context) (bool, error) {
	p, err := s.migrations()
	if err != nil {
		return false, err
	}
	pending, err := p.HasPending(ctx)
	if err != nil {
		return false, fmt.Errorf("pending migrations: %w", err)
	}
	return pending, nil
}

func (s *Stores) migrations() (*goose.Provider, error) {
	d, name := goose.DialectSQLite3, "sqlite"
	opts := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.Dialect == dialect.Postgres {
		d, name = goose.DialectPostgres, "postgres"
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrationLockTries))
		if err != nil {
			return nil, fmt.Errorf("migration lock: %w", err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	dir, err := fs.Sub(migrations.FS, name)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	p, err := goose.NewProvider(d, s.SQL, dir, opts...)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

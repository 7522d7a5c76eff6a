package storage_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/sqltool"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent/migrate"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// "make migration" runs the first test below with a name. The test then writes the missing
// migration instead of failing, and updates the checksums of files that were edited by hand.
var (
	newMigration = flag.String("migration", "", "write the missing migration under this `name`")
	fromScratch  = flag.Bool("from-scratch", false, "with -migration: replace all migrations (before the first release only)")
)

var migrationDirs = map[string]string{
	"sqlite":   "../ent/migrate/migrations/sqlite",
	"postgres": "../ent/migrate/migrations/postgres",
}

// emptyStores opens a database without tables.
func emptyStores(t *testing.T, dialect string) *storage.Stores {
	cfg := storage.Config{DataDir: t.TempDir()}
	if dialect == "postgres" {
		cfg.DatabaseURL = storagetest.EmptyPostgresURL(t)
	}
	return storagetest.Open(t, cfg)
}

// copyOf copies the migrations at dir, or none of them, to a new directory.
func copyOf(t *testing.T, dir string, none bool) *sqltool.GooseDir {
	work := t.TempDir()
	if !none {
		require.NoError(t, os.CopyFS(work, os.DirFS(dir)))
	}
	d, err := sqltool.NewGooseDir(work)
	require.NoError(t, err)
	return d
}

// diff writes to dir the migration from the migrations in dir to the tables.
func diff(t *testing.T, dialect string, dir *sqltool.GooseDir, name string, tables []*schema.Table) error {
	s := emptyStores(t, dialect)
	m, err := schema.NewMigrate(driverOf(s),
		schema.WithDir(dir), schema.WithFormatter(sqltool.GooseFormatter), schema.WithMigrationMode(schema.ModeReplay),
		schema.WithDropColumn(true), schema.WithDropIndex(true), schema.WithErrNoPlan(true))
	require.NoError(t, err)
	return m.NamedDiff(t.Context(), name, tables...)
}

func TestMigrationsLeaveNoDifferenceFromTheSchema(t *testing.T) {
	for dialect, path := range migrationDirs {
		t.Run(dialect, func(t *testing.T) {
			dir := copyOf(t, path, *fromScratch)
			if *newMigration != "" {
				sum, err := dir.Checksum()
				require.NoError(t, err)
				require.NoError(t, atlas.WriteSumFile(dir, sum))
			}
			err := diff(t, dialect, dir, *newMigration, migrate.Tables)
			complete := errors.Is(err, atlas.ErrNoPlan)
			if complete && *newMigration == "" {
				return
			}
			if !complete {
				require.NoError(t, err)
			}
			if *newMigration == "" {
				t.Fatalf("the schema has changed: make migration NAME=what-changed writes this\n%s", newest(t, dir))
			}
			if *fromScratch {
				require.NoError(t, os.RemoveAll(path))
				require.NoError(t, os.Mkdir(path, 0o755))
			}
			files, err := os.ReadDir(dir.Path())
			require.NoError(t, err)
			for _, f := range files {
				content, err := os.ReadFile(filepath.Join(dir.Path(), f.Name()))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(path, f.Name()), content, 0o644))
			}
			t.Logf("wrote to %s:\n%s", path, newest(t, dir))
		})
	}
}

// No SQLite migration drops a table. Foreign keys cannot be turned off within a transaction, such
// as a migration, so dropping a table deletes the rows that refer to it. Generated migrations for a
// new column do that.
func TestMigrationsDropNoTableOfSQLite(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(migrationDirs["sqlite"], "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		assert.False(t, strings.Contains(up, "DROP TABLE"),
			"%s deletes data: write it by hand with ALTER TABLE, then run make migration with the same NAME again", file)
	}
}

func TestMigrationDriftIsNoticed(t *testing.T) {
	for dialect, path := range migrationDirs {
		t.Run(dialect, func(t *testing.T) {
			dir := copyOf(t, path, false)
			// A copy of the tables, one of which has an additional column.
			changed := make([]*schema.Table, len(migrate.Tables))
			copy(changed, migrate.Tables)
			for i, table := range changed {
				if table.Name == "writers" {
					more := *table
					more.Columns = append(append([]*schema.Column{}, table.Columns...),
						&schema.Column{Name: "added", Type: field.TypeString, Default: ""})
					changed[i] = &more
				}
			}
			require.NoError(t, diff(t, dialect, dir, "drift", changed))
			assert.Contains(t, newest(t, dir), "added")
		})
	}
}

func newest(t *testing.T, dir *sqltool.GooseDir) string {
	files, err := dir.Files()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return string(files[len(files)-1].Bytes())
}

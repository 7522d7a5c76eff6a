package storage_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	atlasschema "ariga.io/atlas/sql/schema"
	"ariga.io/atlas/sql/sqltool"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/ent/migrate"
	"tideline/ent/user"
	"tideline/storage"
	"tideline/storage/storagetest"
)

// "make migration" runs the first test below with a name. It then writes what is
// missing instead of complaining about it, and the sums of what was edited by hand.
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

// diff writes to dir what leads from its migrations to the tables.
func diff(t *testing.T, dialect string, dir *sqltool.GooseDir, name string, tables []*schema.Table) error {
	s := emptyStores(t, dialect)
	m, err := schema.NewMigrate(driverOf(s),
		schema.WithDir(dir), schema.WithFormatter(sqltool.GooseFormatter), schema.WithMigrationMode(schema.ModeReplay),
		schema.WithDropColumn(true), schema.WithDropIndex(true), schema.WithErrNoPlan(true),
		schema.WithDiffHook(keepExpressions))
	require.NoError(t, err)
	return m.NamedDiff(t.Context(), name, tables...)
}

// keepExpressions keeps indexes of expressions, which ent/schema has no words for.
func keepExpressions(next schema.Differ) schema.Differ {
	return schema.DiffFunc(func(current, desired *atlasschema.Schema) ([]atlasschema.Change, error) {
		for _, table := range current.Tables {
			table.Indexes = slices.DeleteFunc(table.Indexes, func(i *atlasschema.Index) bool {
				return slices.ContainsFunc(i.Parts, func(p *atlasschema.IndexPart) bool { return p.X != nil })
			})
		}
		return next.Diff(current, desired)
	})
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

// Foreign keys cannot be turned off within a transaction, such as that of a
// migration: with a table SQLite deletes the rows that refer to its rows. What is
// generated for a new column does that.
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
			// A copy of one table with a column more than the migrations give it.
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

// Posts of before there was a counter for each visibility are in the counters.
func TestMigrationCountsPostsByVisibility(t *testing.T) {
	for dialect, path := range migrationDirs {
		t.Run(dialect, func(t *testing.T) {
			s := emptyStores(t, dialect)
			as := map[string]goose.Dialect{"sqlite": goose.DialectSQLite3, "postgres": goose.DialectPostgres}[dialect]
			before, err := goose.NewProvider(as, s.SQL, os.DirFS(path), goose.WithDisableGlobalRegistry(true))
			require.NoError(t, err)
			_, err = before.UpTo(t.Context(), 20261122031999)
			require.NoError(t, err)
			for _, statement := range []string{
				`INSERT INTO users (id, handle, password_hash, post_count, created_at) VALUES
					(1, 'ann', '-', 7, CURRENT_TIMESTAMP), (2, 'bob', '-', 1, CURRENT_TIMESTAMP), (3, 'cleo', '-', 0, CURRENT_TIMESTAMP)`,
				`INSERT INTO posts (id, author_id, text, visibility) VALUES (1, 1, '', 'PUBLIC'), (2, 1, '', 'FOLLOWERS'), (3, 1, '', 'FOLLOWERS'),
					(4, 1, '', 'MUTUALS'), (5, 1, '', 'MUTUALS'), (6, 1, '', 'MUTUALS'), (7, 1, '', 'PRIVATE'), (8, 2, '', 'PUBLIC')`,
			} {
				_, err := s.SQL.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			require.NoError(t, s.Migrate(t.Context()))
			for id, want := range map[int64][4]int{1: {7, 1, 2, 3}, 2: {1, 1, 0, 0}, 3: {}} {
				u := s.DB.User.GetX(t.Context(), id)
				assert.Equal(t, want, [4]int{u.PostCount, u.PublicPostCount, u.FollowersPostCount, u.MutualsPostCount}, u.Handle)
			}
			assert.Equal(t, 8, s.DB.Post.Query().CountX(t.Context()))
		})
	}
}

// Authors on their way between push and pull stay on it under the new names.
func TestMigrationKeepsFanOutModes(t *testing.T) {
	for dialect, path := range migrationDirs {
		t.Run(dialect, func(t *testing.T) {
			s := emptyStores(t, dialect)
			as := map[string]goose.Dialect{"sqlite": goose.DialectSQLite3, "postgres": goose.DialectPostgres}[dialect]
			before, err := goose.NewProvider(as, s.SQL, os.DirFS(path), goose.WithDisableGlobalRegistry(true))
			require.NoError(t, err)
			_, err = before.UpTo(t.Context(), 20261122073999)
			require.NoError(t, err)
			for _, statement := range []string{
				`INSERT INTO users (id, handle, password_hash, diffusion, diffusion_since, created_at) VALUES
					(1, 'ann', '-', 'PUSH', 1, CURRENT_TIMESTAMP), (2, 'bob', '-', 'RISING', 2, CURRENT_TIMESTAMP),
					(3, 'cleo', '-', 'PULL', 3, CURRENT_TIMESTAMP), (4, 'dan', '-', 'FALLING', 4, CURRENT_TIMESTAMP)`,
				`INSERT INTO jobs (id, pool, kind, payload, due_at, created_at) VALUES (1, 'large', 'author.falling', '{}', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)`,
			} {
				_, err := s.SQL.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			require.NoError(t, s.Migrate(t.Context()))
			for id, mode := range map[int64]user.FanOutMode{
				1: user.FanOutModePUSH, 2: user.FanOutModePUSH_TO_PULL, 3: user.FanOutModePULL, 4: user.FanOutModePULL_TO_PUSH,
			} {
				u := s.DB.User.GetX(t.Context(), id)
				assert.Equal(t, mode, u.FanOutMode, u.Handle)
				assert.Equal(t, id, u.FanOutModeSince, u.Handle)
			}
			assert.Equal(t, "author.returns", s.DB.Job.Query().OnlyX(t.Context()).Kind)
		})
	}
}

func newest(t *testing.T, dir *sqltool.GooseDir) string {
	files, err := dir.Files()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return string(files[len(files)-1].Bytes())
}

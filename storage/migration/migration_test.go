package migration_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/migration"
	"tideline/storage/storagetest"
)

// TestMain adds migrations to the real ones: a new column, an index that replaces another, and the
// removal of the replaced index.
func TestMain(m *testing.M) {
	all := fstest.MapFS{}
	for _, files := range []fs.FS{migration.Files(), os.DirFS("testdata")} {
		for _, dir := range []string{"postgres", "sqlite"} {
			names, err := fs.Glob(files, dir+"/*.sql")
			if err != nil {
				panic(err)
			}
			for _, name := range names {
				text, err := fs.ReadFile(files, name)
				if err != nil {
					panic(err)
				}
				all[name] = &fstest.MapFile{Data: text}
			}
		}
	}
	migration.SetFiles(all)
	os.Unsetenv("TIDELINE_TEST_CACHE") // cached databases lack the added migrations
	storagetest.Main(m)
}

// The versions of the migrations that TestMain adds.
const addColumn, addIndex, dropIndex = 20990101000001, 20990101000002, 20990101000003

var dialects = []string{dialect.SQLite, dialect.Postgres}

func all(t *testing.T, dialectName string) []migration.Migration {
	t.Helper()
	list, err := migration.All(dialectName)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list
}

// emptyStores opens a database without tables.
func emptyStores(t *testing.T, dialectName string) *storage.Stores {
	t.Helper()
	cfg := storage.Config{DataDir: t.TempDir()}
	if dialectName == dialect.Postgres {
		cfg.DatabaseURL = storagetest.EmptyPostgresURL(t)
	}
	return storagetest.Open(t, cfg)
}

// Processes of the previous version continue while an expanding migration is applied: it removes
// nothing that they use, and blocks them only for a moment.
func TestMigrationsAreForRunningProcesses(t *testing.T) {
	for _, dialectName := range dialects {
		for _, m := range all(t, dialectName) {
			if m.Name == "init" {
				continue
			}
			file := fmt.Sprintf("%s/%d_%s", dialectName, m.Version, m.Name)
			if m.Phase == migration.Expand {
				assert.Empty(t, m.Breaks(), "%s takes away what processes of the version before use: "+
					"put it into a migration of its own whose first line is '-- tideline: contract'", file)
			}
			assert.LessOrEqual(t, len(lockedTogether(m)), 1, "%s locks several tables in use in one transaction, and may wait in a circle with a writer of "+
				"the version before: make each a migration of its own", file)
			for _, s := range m.Statements {
				for _, e := range s.Effects {
					assert.False(t, e.Long(), "%s\n%s\nlocks %s. Make it short: CREATE INDEX CONCURRENTLY, ADD CONSTRAINT … NOT VALID and VALIDATE "+
						"CONSTRAINT, a new column in place of a new type, rows filled in by a job", file, s.SQL, e)
				}
				created, found := strings.CutPrefix(s.SQL, "CREATE INDEX CONCURRENTLY ")
				if !found {
					created, found = strings.CutPrefix(s.SQL, "CREATE UNIQUE INDEX CONCURRENTLY ")
				}
				if found {
					name, _, _ := strings.Cut(created, " ")
					assert.True(t, slices.ContainsFunc(m.Statements, func(s migration.Statement) bool {
						return s.SQL == "DROP INDEX CONCURRENTLY IF EXISTS "+name+";"
					}), "%s must drop the index %s before it creates it: a try that was interrupted leaves one that is not valid", file, name)
				}
				assert.Equal(t, strings.Contains(s.SQL, " CONCURRENTLY "), !m.Transaction,
					"%s: '-- +goose NO TRANSACTION' belongs to what is CONCURRENTLY, and to nothing else:\n%s", file, s.SQL)
			}
		}
	}
}

// lockedTogether returns the tables in use on which one transaction of the migration holds locks
// that block writers. If there are two, a deadlock is possible: a writer of the first waits for the
// migration, which waits for a writer of the second. PostgreSQL then aborts one of them, perhaps
// the writer.
func lockedTogether(m migration.Migration) (most []string) {
	var tables []string
	for _, s := range m.Statements {
		if !m.Transaction {
			tables = nil
		}
		for _, e := range s.Effects {
			if e.Lock != migration.RowExclusive && e.Lock != migration.ShareUpdateExclusive && !slices.Contains(tables, e.Table) {
				tables = append(tables, e.Table)
			}
		}
		if len(tables) > len(most) {
			most = tables
		}
	}
	return most
}

// A migration has the same phase on both databases.
func TestPhasesAreThoseOfBothDatabases(t *testing.T) {
	steps := func(dialectName string) (names []string) {
		for _, m := range all(t, dialectName) {
			names = append(names, fmt.Sprint(m.Name, " ", m.Phase))
		}
		return names
	}
	require.Equal(t, steps(dialect.SQLite), steps(dialect.Postgres))
}

// The result is the same whether contracting migrations run in their turn or all at the end.
func TestExpandDoesNotDependOnContract(t *testing.T) {
	for _, dialectName := range dialects {
		t.Run(dialectName, func(t *testing.T) {
			inTurn, inTheEnd := emptyStores(t, dialectName), emptyStores(t, dialectName)
			require.NoError(t, inTurn.Migrate(t.Context()))
			for _, phase := range []migration.Phase{migration.Expand, migration.Contract} {
				for _, m := range all(t, dialectName) {
					if m.Phase != phase {
						continue
					}
					for _, s := range m.Statements {
						_, err := inTheEnd.SQL.ExecContext(t.Context(), s.SQL)
						require.NoError(t, err, s.SQL)
					}
				}
			}
			require.Equal(t, schemaOf(t, inTurn), schemaOf(t, inTheEnd))
		})
	}
}

// schemaOf returns the schema of the tables, independent of the order of columns.
func schemaOf(t *testing.T, s *storage.Stores) []string {
	t.Helper()
	query := "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'goose%' AND tbl_name NOT LIKE 'goose%' ORDER BY 1"
	if s.Dialect == dialect.Postgres {
		query = `SELECT format('%s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%'
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%' ORDER BY 1`
	}
	rows, err := s.SQL.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	var found []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		found = append(found, line)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, found)
	return found
}

// back reverts a migrated database to the state before one expanding migration and the contracting
// migration after it.
func back(t *testing.T, s *storage.Stores) {
	t.Helper()
	statements := []string{
		"CREATE INDEX user_fixture_before ON users (role, handle)", "DROP INDEX user_fixture",
		fmt.Sprintf("DELETE FROM goose_db_version WHERE version_id IN (%d, %d)", addIndex, dropIndex),
	}
	for _, statement := range statements {
		_, err := s.SQL.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

func versionsOf(list []migration.Migration) (names []string) {
	for _, m := range list {
		names = append(names, m.Name)
	}
	return names
}

func hasIndex(t *testing.T, s *storage.Stores, name string) bool {
	t.Helper()
	return slices.ContainsFunc(schemaOf(t, s), func(line string) bool {
		return strings.Contains(line, name+" ON ") || strings.Contains(line, "INDEX `"+name+"` ON")
	})
}

// A process expands at its start. What only older processes need is removed on request.
func TestNothingContractsByItself(t *testing.T) {
	const old, young = "user_fixture_before", "user_fixture"
	for _, dialectName := range dialects {
		t.Run(dialectName, func(t *testing.T) {
			s := emptyStores(t, dialectName)
			plan, err := s.Pending(t.Context())
			require.NoError(t, err)
			require.True(t, plan.Fresh)
			require.NoError(t, s.Migrate(t.Context()))
			plan, err = s.Pending(t.Context())
			require.NoError(t, err)
			require.Empty(t, plan.Pending, "where there were no tables, all is applied")
			require.False(t, hasIndex(t, s, old))

			back(t, s)
			require.True(t, hasIndex(t, s, old))
			_, err = s.Apply(t.Context(), migration.Options{Phase: migration.Contract})
			require.ErrorIs(t, err, migration.ErrExpandFirst)
			applied, err := s.Apply(t.Context(), migration.Options{})
			require.NoError(t, err)
			require.Contains(t, versionsOf(applied), "fixture-index")
			require.NotContains(t, versionsOf(applied), "no-fixture-index")
			require.True(t, hasIndex(t, s, old) && hasIndex(t, s, young))

			plan, err = s.Pending(t.Context())
			require.NoError(t, err)
			require.Empty(t, plan.Of(migration.Expand))
			applied, err = s.Apply(t.Context(), migration.Options{Phase: migration.Contract})
			require.NoError(t, err)
			require.Contains(t, versionsOf(applied), "no-fixture-index")
			require.False(t, hasIndex(t, s, old))
			require.True(t, hasIndex(t, s, young))
			applied, err = s.Apply(t.Context(), migration.Options{Phase: migration.Contract})
			require.NoError(t, err)
			require.Empty(t, applied)
		})
	}
}

// read finds the same statements as goose. TestExpandDoesNotDependOnContract shows that each file
// leads to the same tables either way; this test shows that no statement is left over.
func TestEveryStatementIsRead(t *testing.T) {
	for folder, dialectName := range map[string]string{"sqlite": dialect.SQLite, "postgres": dialect.Postgres} {
		for _, m := range all(t, dialectName) {
			text, err := fs.ReadFile(migration.Files(), fmt.Sprintf("%s/%d_%s.sql", folder, m.Version, m.Name))
			require.NoError(t, err)
			up, _, _ := strings.Cut(string(text), "-- +goose Down")
			var want []string
			for line := range strings.Lines(up) {
				if !strings.HasPrefix(strings.TrimSpace(line), "--") {
					want = append(want, strings.Fields(line)...)
				}
			}
			var got []string
			for _, s := range m.Statements {
				require.True(t, strings.HasSuffix(s.SQL, ";"), s.SQL)
				got = append(got, strings.Fields(s.SQL)...)
			}
			require.Equal(t, want, got)
		}
	}
}

// A database from before the first release is refused and not changed.
func TestDatabaseOfBeforeTheFirstMigrationIsRefused(t *testing.T) {
	for _, dialectName := range dialects {
		t.Run(dialectName, func(t *testing.T) {
			s := emptyStores(t, dialectName)
			require.NoError(t, s.Migrate(t.Context()))
			_, err := s.SQL.ExecContext(t.Context(), fmt.Sprintf("UPDATE goose_db_version SET version_id = 20261121031533 WHERE version_id = %d", all(t, dialectName)[0].Version))
			require.NoError(t, err)
			before := schemaOf(t, s)
			_, err = s.Pending(t.Context())
			require.ErrorIs(t, err, migration.ErrTooOld)
			require.ErrorContains(t, s.Migrate(t.Context()), "'tideline export' with that version and 'tideline import' with this one")
			require.Equal(t, before, schemaOf(t, s))
		})
	}
}

package migration_test

import (
	"database/sql"
	"slices"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/migration"
	"tideline/storage/storagetest"
)

// seen records the strongest lock of a transaction on each table, and the tables that it rewrote.
type seen struct {
	locks   map[string]migration.Lock
	rewrote map[string]bool
}

// observe executes a statement in a transaction and records its effect on existing tables.
func observe(t *testing.T, db *sql.DB, statement string) seen {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	before := files(t, tx)
	_, err = tx.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
	found := seen{map[string]migration.Lock{}, map[string]bool{}}
	rows, err := tx.QueryContext(t.Context(), "SELECT relation::bigint, mode FROM pg_locks WHERE pid = pg_backend_pid() AND granted AND locktype = 'relation'")
	require.NoError(t, err)
	modes := map[string]migration.Lock{"RowExclusiveLock": migration.RowExclusive, "ShareUpdateExclusiveLock": migration.ShareUpdateExclusive, "ShareLock": migration.Share,
		"ShareRowExclusiveLock": migration.ShareRowExclusive, "AccessExclusiveLock": migration.AccessExclusive}
	for rows.Next() {
		var id int64
		var mode string
		require.NoError(t, rows.Scan(&id, &mode))
		lock, named := modes[mode]
		table, old := before[id]
		if named && old && slices.Index(migration.Strength, lock) > slices.Index(migration.Strength, found.locks[table.name]) {
			found.locks[table.name] = lock
		}
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close()) //nolint:sqlclosecheck // the transaction asks again below
	for id, now := range files(t, tx) {
		if was, old := before[id]; old && was.file != now.file {
			found.rewrote[was.name] = true
		}
	}
	require.NoError(t, tx.Commit())
	return found
}

type file struct {
	name string
	file int64
}

func files(t *testing.T, tx *sql.Tx) map[int64]file {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), `SELECT oid::bigint, relname, relfilenode::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	require.NoError(t, err)
	defer rows.Close()
	all := map[int64]file{}
	for rows.Next() {
		var id int64
		var f file
		require.NoError(t, rows.Scan(&id, &f.name, &f.file))
		all[id] = f
	}
	require.NoError(t, rows.Err())
	return all
}

func claimed(effects []migration.Effect) (locks map[string]migration.Lock, rewrites map[string]bool) {
	locks, rewrites = map[string]migration.Lock{}, map[string]bool{}
	for _, e := range effects {
		if e.Table == "" {
			continue
		}
		if slices.Index(migration.Strength, e.Lock) > slices.Index(migration.Strength, locks[e.Table]) {
			locks[e.Table] = e.Lock
		}
		if e.For == migration.Rewrite {
			rewrites[e.Table] = true
		}
	}
	return locks, rewrites
}

// For every migration, the predicted locks are the locks that PostgreSQL takes.
func TestEffectsOfMigrationsAreThoseOfPostgreSQL(t *testing.T) {
	t.Parallel()
	s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.EmptyPostgresURL(t)})
	all, err := migration.All(dialect.Postgres)
	require.NoError(t, err)
	for _, m := range all {
		created := map[string]bool{}
		for _, statement := range m.Statements {
			if !m.Transaction {
				_, err := s.SQL.ExecContext(t.Context(), statement.SQL) // cannot run in a transaction
				require.NoError(t, err)
				continue
			}
			found := observe(t, s.SQL, statement.SQL)
			for table := range created { // other sessions do not see it before the commit
				delete(found.locks, table)
				delete(found.rewrote, table)
			}
			locks, rewrites := claimed(statement.Effects)
			assert.Equal(t, found.locks, locks, statement.SQL)
			assert.Equal(t, found.rewrote, rewrites, statement.SQL)
			if made := migration.CreateTable.FindStringSubmatch(statement.SQL); made != nil {
				created[made[1]] = true
			}
		}
	}
}

// For statements that a migration may use, the predicted locks are the locks that PostgreSQL takes.
func TestEffectsAreThoseOfPostgreSQL(t *testing.T) {
	t.Parallel()
	for statement, spans := range map[string][]migration.Span{
		`ALTER TABLE a ADD COLUMN c text`:                                                  {migration.Moment},
		`ALTER TABLE a ADD COLUMN c text NOT NULL DEFAULT 'x, y', ADD COLUMN d int`:        {migration.Moment},
		`ALTER TABLE a ADD COLUMN c timestamptz DEFAULT now()`:                             {migration.Moment},
		`ALTER TABLE a ADD COLUMN c uuid DEFAULT gen_random_uuid()`:                        {migration.Rewrite},
		`ALTER TABLE a ADD COLUMN c bigint GENERATED ALWAYS AS (n * 2) STORED`:             {migration.Rewrite},
		`ALTER TABLE a ADD COLUMN c bigint REFERENCES b (id)`:                              {migration.Moment, migration.Moment},
		`ALTER TABLE a ALTER COLUMN n SET NOT NULL`:                                        {migration.Scan},
		`ALTER TABLE a ALTER COLUMN n TYPE bigint`:                                         {migration.Rewrite},
		`ALTER TABLE a ALTER COLUMN n SET DEFAULT 7`:                                       {migration.Moment},
		`ALTER TABLE a ALTER COLUMN t DROP NOT NULL`:                                       {migration.Moment},
		`ALTER TABLE a ALTER COLUMN n SET STATISTICS 500`:                                  {migration.Moment},
		`ALTER TABLE a SET (fillfactor = 90)`:                                              {migration.Moment},
		`ALTER TABLE a DROP COLUMN t`:                                                      {migration.Moment},
		`ALTER TABLE a RENAME COLUMN t TO u`:                                               {migration.Moment},
		`ALTER TABLE a RENAME TO z`:                                                        {migration.Moment},
		`ALTER TABLE a ADD CONSTRAINT positive CHECK (n > 0)`:                              {migration.Scan},
		`ALTER TABLE a ADD CONSTRAINT positive CHECK (n > 0) NOT VALID`:                    {migration.Moment},
		`ALTER TABLE a VALIDATE CONSTRAINT later`:                                          {migration.Scan},
		`ALTER TABLE a DROP CONSTRAINT later`:                                              {migration.Moment},
		`ALTER TABLE a ADD CONSTRAINT one UNIQUE (n)`:                                      {migration.Build},
		`ALTER TABLE a ADD CONSTRAINT of_b FOREIGN KEY (b_id) REFERENCES b (id)`:           {migration.Scan, migration.Scan},
		`ALTER TABLE a ADD CONSTRAINT of_b FOREIGN KEY (b_id) REFERENCES b (id) NOT VALID`: {migration.Moment, migration.Moment},
		`CREATE INDEX a_t ON a (t)`:                                                        {migration.Build},
		`CREATE UNIQUE INDEX IF NOT EXISTS "a_t" ON "a" ("id", "t")`:                       {migration.Build},
		`DROP INDEX a_n`: {migration.Moment},
		`CREATE TABLE c (id bigint PRIMARY KEY, b_id bigint REFERENCES b (id))`: {migration.Moment},
		`DROP TABLE a`:              {migration.Moment, migration.Moment},
		`TRUNCATE a`:                {migration.Moment},
		`UPDATE a SET n = n + 1`:    {migration.Rows},
		`DELETE FROM a WHERE n = 1`: {migration.Rows},
		`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$`: nil,
		`DROP FUNCTION IF EXISTS f()`: nil,
		`CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION nothing()`: {migration.Moment},
	} {
		t.Run(statement, func(t *testing.T) {
			t.Parallel()
			s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.EmptyPostgresURL(t)})
			for _, made := range []string{
				"CREATE TABLE b (id bigint PRIMARY KEY)", "INSERT INTO b VALUES (1)",
				"CREATE TABLE a (id bigint PRIMARY KEY, t text NOT NULL, n int, b_id bigint)", "INSERT INTO a VALUES (1, 'x', 1, 1)",
				"CREATE INDEX a_n ON a (n)", "ALTER TABLE a ADD CONSTRAINT later CHECK (n < 9) NOT VALID",
				"CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
			} {
				_, err := s.SQL.ExecContext(t.Context(), made)
				require.NoError(t, err)
			}
			effects := migration.Effects(statement+";", func(index string) string { return map[string]string{"a_n": "a"}[index] })
			var said []migration.Span
			for _, e := range effects {
				said = append(said, e.For)
			}
			require.Equal(t, spans, said)
			found := observe(t, s.SQL, statement)
			locks, rewrites := claimed(effects)
			if statement == "TRUNCATE a" { // creates a new, empty file
				clear(found.rewrote)
			}
			require.Equal(t, found.locks, locks)
			require.Equal(t, found.rewrote, rewrites)
		})
	}
}

// A statement that the package does not recognise is expected to have the worst effect.
func TestUnknownStatementsAreLong(t *testing.T) {
	t.Parallel()
	for _, statement := range []string{"CLUSTER a;", "ALTER TABLE a INHERIT b;", "VACUUM FULL a;"} {
		e := migration.Effects(statement, nil)
		require.Len(t, e, 1, statement)
		require.True(t, e[0].Long(), statement)
	}
}

// A statement that processes of the previous version may notice is not allowed in an expanding
// migration.
func TestWhatBreaksOlderProcesses(t *testing.T) {
	t.Parallel()
	for statement, breaks := range map[string]bool{
		`ALTER TABLE a ADD COLUMN c text NULL;`:                        false,
		`ALTER TABLE a ADD COLUMN c text NOT NULL DEFAULT '';`:         false,
		`ALTER TABLE a ADD COLUMN c text NOT NULL;`:                    true,
		`ALTER TABLE a ADD COLUMN c text, DROP COLUMN d;`:              true,
		`ALTER TABLE a RENAME COLUMN c TO d;`:                          true,
		`ALTER TABLE a ALTER COLUMN c TYPE bigint;`:                    true,
		`ALTER TABLE a ALTER COLUMN c SET NOT NULL;`:                   true,
		`ALTER TABLE a ALTER COLUMN c DROP NOT NULL;`:                  false,
		`ALTER TABLE a ADD CONSTRAINT k CHECK (c > 0) NOT VALID;`:      true,
		`ALTER TABLE a DROP CONSTRAINT k;`:                             true,
		`DROP TABLE a;`:                                                true,
		`DROP INDEX CONCURRENTLY IF EXISTS i;`:                         true,
		`CREATE INDEX CONCURRENTLY i ON a (c);`:                        false,
		`UPDATE a SET c = '';`:                                         false,
		`CREATE TABLE b (id bigint NOT NULL, "drop" text NOT NULL);`:   false,
		`ALTER TABLE a ADD COLUMN c bigint NOT NULL REFERENCES b(id);`: true,
	} {
		m := migration.Migration{Statements: []migration.Statement{{SQL: statement}}}
		require.Equal(t, breaks, len(m.Breaks()) > 0, statement)
	}
	again := migration.Migration{Statements: []migration.Statement{{SQL: "DROP INDEX CONCURRENTLY IF EXISTS i;"}, {SQL: "CREATE INDEX CONCURRENTLY i ON a (c);"}}}
	require.Empty(t, again.Breaks(), "an index that is built anew")
}

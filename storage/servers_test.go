package storage_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
	"tideline/storage/storagetest"
)

// A Redis of an unsupported version is refused with the reason. A Redis that hides the incarnation
// of its data is refused unless that is allowed.
func TestRedisThatIsRefused(t *testing.T) {
	t.Parallel()
	proxy := storagetest.StartProxy(t, "unix", strings.TrimPrefix(storagetest.StartRedis(t).URL(), "unix://"))
	cfg := storage.Config{DataDir: t.TempDir(), RedisURL: "redis://" + proxy.Addr}
	refused := func(says ...string) {
		t.Helper()
		_, err := storage.Open(t.Context(), cfg, discard)
		for _, words := range says {
			require.ErrorContains(t, err, words)
		}
	}
	well := storagetest.Open(t, cfg)
	require.False(t, well.HidesIncarnation)

	proxy.Replace("\nredis_version:7", "\nredis_version:6")
	refused("it is Redis 6.", "Redis 7 or later and Valkey 8 or later")
	proxy.Replace("\nredis_version:", "\nother_version:")
	refused("does not tell its version")
	proxy.Replace("\nredis_git_sha1:", "\ngarnet_version:")
	refused("it is garnet")
	proxy.Replace("\nmaster_replid:", "\nmaster_hidden:")
	refused("hides master_replid", "TIDELINE_REDIS_INCARNATION")

	cfg.RedisIncarnation = "optional"
	s := storagetest.Open(t, cfg)
	require.True(t, s.HidesIncarnation)
	found, err := s.Survey(t.Context())
	require.NoError(t, err)
	require.True(t, found.Masters[0].HidesIncarnation)
	cfg.RedisIncarnation = "perhaps"
	require.ErrorContains(t, cfg.Validate(), "required or optional")
}

// Transactions and single statements are READ COMMITTED even if the default of the database is
// another level: a row that others change meanwhile causes no error.
func TestIsolationIsReadCommitted(t *testing.T) {
	t.Parallel()
	cfg := storage.Config{DataDir: t.TempDir(), DatabaseURL: storagetest.PostgresURL(t)}
	before := storagetest.Open(t, cfg)
	_, err := before.SQL.ExecContext(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', current_database(), 'repeatable read'); END $$`)
	require.NoError(t, err)
	cfg.DataDir = t.TempDir()
	s := storagetest.Open(t, cfg)
	level := func(q interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}) (level string) {
		require.NoError(t, q.QueryRowContext(t.Context(), "SELECT current_setting('transaction_isolation')").Scan(&level))
		return level
	}
	require.Equal(t, "read committed", level(s.SQL))
	tx, err := s.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "read committed", level(tx))
	require.NoError(t, tx.Rollback())
	wanted, err := s.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	require.Equal(t, "repeatable read", level(wanted))
	require.NoError(t, wanted.Rollback())

	addUser(t, s, 1)
	counting, err := s.DB.Tx(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, counting.User.Query().CountX(t.Context()))
	s.DB.User.UpdateOneID(1).AddPostCount(1).ExecX(t.Context())
	counting.User.UpdateOneID(1).AddPostCount(1).ExecX(t.Context())
	require.NoError(t, counting.Commit())
	require.Equal(t, 2, s.DB.User.GetX(t.Context(), 1).PostCount)
}

// Behind a pooler that gives each transaction another session, everything except migrations works,
// with the plain URL and with the URL from the documents.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	direct := storagetest.PostgresURL(t)
	pooled := storagetest.StartPgBouncer(t, direct)
	require.False(t, storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: direct}).Pooled)
	for i, more := range []string{"", "&default_query_exec_mode=exec"} {
		s := storagetest.Open(t, storage.Config{DataDir: t.TempDir(), DatabaseURL: pooled + more})
		require.True(t, s.Pooled)
		user := int64(i + 1)
		addUser(t, s, user)
		var clients sync.WaitGroup
		errs := make(chan error, 1000)
		for range 8 {
			clients.Go(func() {
				for range 20 {
					if err := countPost(t.Context(), s); err != nil {
						errs <- err
					}
					if err := s.DB.User.UpdateOneID(user).AddPostCount(1).Exec(t.Context()); err != nil {
						errs <- err
					}
				}
			})
		}
		clients.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, s.Migrate(t.Context()), "nothing is pending")
		_, err := s.SQL.ExecContext(t.Context(), "CREATE TABLE aside AS SELECT * FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)")
		require.NoError(t, err)
		_, err = s.SQL.ExecContext(t.Context(), "DELETE FROM goose_db_version WHERE version_id IN (SELECT version_id FROM aside)")
		require.NoError(t, err)
		require.ErrorContains(t, s.Migrate(t.Context()), "leads to PostgreSQL itself")
		_, err = s.SQL.ExecContext(t.Context(), "INSERT INTO goose_db_version SELECT * FROM aside")
		require.NoError(t, err)
		_, err = s.SQL.ExecContext(t.Context(), "DROP TABLE aside")
		require.NoError(t, err)
	}
}

// A password with unescaped characters makes a URL invalid, or gives it another meaning. No message
// contains a part of the password.
func TestPasswordsAreNeverPrintedInPart(t *testing.T) {
	t.Parallel()
	for _, c := range "#/?@:% []&=+\"<>\\^`{|},;!$'()*~" {
		for _, password := range []string{"SECR1" + string(c) + "SECR2", "7716" + string(c) + "8823", string(c) + "SECR1", "7716" + string(c)} {
			for _, cfg := range []storage.Config{
				{DataDir: "d", DatabaseURL: fmt.Sprintf("postgres://tideline:%s@db/n", password)},
				{DataDir: "d", DatabaseURL: fmt.Sprintf("postgres://tideline:%s@db:1,db2:2/n?sslmode=disable", password)},
				{DataDir: "d", RedisURL: fmt.Sprintf("redis://:%s@cache:6379/0", password)},
				{DataDir: "d", RedisURL: fmt.Sprintf("rediss://u:%s@s1,s2?master_name=m", password)},
			} {
				sql, redis := cfg.Places()
				said := fmt.Sprint(cfg.Validate(), sql, redis, cfg.Risks())
				for _, part := range []string{"SECR1", "SECR2", "7716", "8823"} {
					require.NotContains(t, said, part, "%+v", cfg)
				}
			}
		}
	}
	err := storage.Config{DataDir: "d", DatabaseURL: "postgres://tideline:a/b@db/n"}.Validate()
	require.ErrorContains(t, err, "%2F for /")
}

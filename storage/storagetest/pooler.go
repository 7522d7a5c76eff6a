package storagetest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that pings the pooler
	"github.com/stretchr/testify/require"
)

// StartPgBouncer starts a PgBouncer in transaction mode in front of the PostgreSQL of databaseURL,
// and returns the URL of the same database through it. All clients of a database share at most three
// connections to PostgreSQL, so consecutive transactions of a client often run in different sessions.
// PgBouncer ends with the test. If
// PgBouncer is not installed, the test is skipped, or fails if TIDELINE_TEST_REQUIRE_REAL is 1.
func StartPgBouncer(t testing.TB, databaseURL string) string {
	t.Helper()
	path, err := find("pgbouncer", "/usr/sbin", "/opt/homebrew/bin")
	if err != nil {
		Missing(t, err)
	}
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	dir, err := newDir("pb")
	require.NoError(t, err)
	port, err := freePort()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "users"), []byte(`"postgres" ""`+"\n"), 0o644))
	config := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
		"auth_type = trust\nauth_file = %s\npool_mode = transaction\ndefault_pool_size = 3\n", u.Hostname(), u.Port(), port, filepath.Join(dir, "users"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ini"), []byte(config), 0o644))
	cmd := exec.Command(path, filepath.Join(dir, "ini"))
	cmd.SysProcAttr, err = otherThanRoot(dir)
	require.NoError(t, err)
	u.Host = "127.0.0.1:" + strconv.Itoa(port)
	p := NewProgram(dir, syscall.SIGKILL)
	t.Cleanup(p.Kill)
	require.NoError(t, p.Start(cmd, func(ctx context.Context) error {
		db, err := sql.Open("pgx", u.String()+"&default_query_exec_mode=simple_protocol")
		if err != nil {
			return err
		}
		defer db.Close()
		return db.PingContext(ctx)
	}))
	return u.String()
}

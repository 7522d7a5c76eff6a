package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the checks
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// postgres is a PostgreSQL primary with a synchronous standby: it acknowledges a commit when
// the standby has it. Clients connect through proxies that follow the primary.
type postgres struct {
	t       *testing.T
	server  string // the executable
	primary atomic.Pointer[instance]
	standby *instance // nil after the failover
}

// instance is a PostgreSQL server process.
type instance struct {
	*storagetest.Program
	dir, data string
	port      int
	attr      *syscall.SysProcAttr
}

func newPostgres(t *testing.T) *postgres {
	t.Helper()
	p := &postgres{t: t, server: storagetest.ProgramPath(t, "postgres")}
	first := p.newInstance()
	p.run(first, storagetest.ProgramPath(t, "initdb"), "--pgdata", first.data, "--username=postgres", "--auth=trust",
		"--no-sync", "--locale=C", "--encoding=UTF8")
	require.NoError(t, p.start(first, false))
	p.primary.Store(first)

	second := p.newInstance()
	p.run(second, storagetest.ProgramPath(t, "pg_basebackup"), "--pgdata", second.data, "--username=postgres",
		"--host=127.0.0.1", "--port="+strconv.Itoa(first.port), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	require.NoError(t, p.start(second, false))
	p.standby = second
	first.End(syscall.SIGQUIT)
	require.NoError(t, p.start(first, true))
	return p
}

func (p *postgres) newInstance() *instance {
	dir := storagetest.ProgramDir(p.t, "pg")
	i := &instance{dir: dir, data: filepath.Join(dir, "data"), port: storagetest.FreePort(p.t), attr: storagetest.AsPostgres(p.t, dir)}
	// SIGQUIT is PostgreSQL's immediate shutdown: the server stops without a checkpoint and
	// replays its log at the next start.
	i.Program = storagetest.NewProgram(dir, syscall.SIGQUIT)
	p.t.Cleanup(i.Kill)
	return i
}

// run runs a PostgreSQL command-line program and waits for it.
func (p *postgres) run(i *instance, path string, args ...string) {
	cmd := exec.Command(path, args...)
	own := *i.attr
	cmd.Dir, cmd.SysProcAttr = i.dir, &own
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, string(out))
}

// start starts the server. With withStandby, each commit waits for the standby. The operating
// system does not crash in this test, so fsync is off.
func (p *postgres) start(i *instance, withStandby bool) error {
	names := ""
	if withStandby {
		names = "*"
	}
	cmd := exec.Command(p.server, "-D", i.data, "-p", strconv.Itoa(i.port), "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200",
		"-c", "shared_buffers=32MB", "-c", "hot_standby=on", "-c", "wal_retrieve_retry_interval=200ms",
		"-c", "synchronous_standby_names="+names)
	cmd.SysProcAttr = i.attr
	return i.Start(cmd, func(ctx context.Context) error {
		db, err := sql.Open("pgx", i.url("postgres"))
		if err != nil {
			return err
		}
		defer db.Close()
		return db.PingContext(ctx)
	})
}

func (i *instance) url(database string) string { return databaseURL(i.addr(), database) }
func (i *instance) addr() string               { return "127.0.0.1:" + strconv.Itoa(i.port) }

func databaseURL(addr, database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", addr, database)
}

// addr returns the address of the primary.
func (p *postgres) addr() string { return p.primary.Load().addr() }

// restart restarts the primary with an immediate shutdown.
func (p *postgres) restart() error {
	p.primary.Load().End(syscall.SIGQUIT)
	return p.start(p.primary.Load(), p.standby != nil)
}

// failOver shuts the primary down immediately and promotes the standby. There is no standby
// afterwards.
func (p *postgres) failOver(ctx context.Context) error {
	p.primary.Load().End(syscall.SIGQUIT)
	db, err := sql.Open("pgx", p.standby.url("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SELECT pg_promote()"); err != nil {
		return err
	}
	p.primary.Store(p.standby)
	p.standby = nil
	return nil
}

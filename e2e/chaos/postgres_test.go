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

// postgres is a primary whose commits are acknowledged when its standby has them,
// too. Clients connect through proxies, which follow the primary.
type postgres struct {
	t       *testing.T
	server  string // the executable
	primary atomic.Pointer[instance]
	standby *instance // nil after the failover
}

// instance is one PostgreSQL server.
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
	// The immediate mode: nothing is finished, and the log is replayed at the start.
	i.Program = storagetest.NewProgram(dir, syscall.SIGQUIT)
	p.t.Cleanup(i.Kill)
	return i
}

// run runs one of PostgreSQL's programs to its end.
func (p *postgres) run(i *instance, path string, args ...string) {
	cmd := exec.Command(path, args...)
	own := *i.attr
	cmd.Dir, cmd.SysProcAttr = i.dir, &own
	out, err := cmd.CombinedOutput()
	require.NoError(p.t, err, string(out))
}

// start starts the server. With a standby, each commit waits for it. The operating
// system does not go down here, so nothing is forced to the disk.
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

// addr is the address of the primary.
func (p *postgres) addr() string { return p.primary.Load().addr() }

// restart restarts the primary in the immediate mode.
func (p *postgres) restart() error {
	p.primary.Load().End(syscall.SIGQUIT)
	return p.start(p.primary.Load(), p.standby != nil)
}

// failOver kills the primary and makes the standby the primary. There is none
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

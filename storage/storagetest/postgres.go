package storagetest

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage"
)

// template is the migrated database. Every other one is a copy of it.
const template = "migrated"

// leftBehind is how many databases of tests that have ended stay until the server stops: to
// drop one, PostgreSQL writes all that it has in memory. Each has some 8 MB.
const leftBehind = 32

// PostgresURL returns the URL of a new, migrated database on a PostgreSQL server
// of this test binary. The database ends with the test, or with the server.
func PostgresURL(t testing.TB) string { return newDatabase(t, template) }

// EmptyPostgresURL is PostgresURL without the tables.
func EmptyPostgresURL(t testing.TB) string { return newDatabase(t, "template0") }

func newDatabase(t testing.TB, template string) string {
	t.Helper()
	p, err := postgres()
	if err != nil {
		missing(t, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.databases++
	name := fmt.Sprintf("test%d", p.databases)
	_, err = p.admin.ExecContext(t.Context(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template))
	require.NoError(t, err)
	if p.databases <= leftBehind {
		return p.url(name)
	}
	t.Cleanup(func() {
		// The test's context has ended by now.
		_, err := p.admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(t, err)
	})
	return p.url(name)
}

// postgresServer is the one PostgreSQL of the test binary.
type postgresServer struct {
	port  int
	admin *sql.DB

	mu        sync.Mutex
	databases int
}

// url has a connection wait longer than a user's does: beside other tests, a server that
// is well may need seconds to accept it.
func (p *postgresServer) url(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable&connect_timeout=60", p.port, database)
}

var postgres = sync.OnceValues(func() (*postgresServer, error) {
	bin := postgresDirs()
	initdb, err := find("initdb", bin...)
	if err != nil {
		return nil, err
	}
	server, err := find("postgres", append([]string{filepath.Dir(initdb)}, bin...)...)
	if err != nil {
		return nil, err
	}
	dir, err := newDir("pg")
	if err != nil {
		return nil, err
	}
	attr, err := otherThanRoot(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	create := exec.Command(initdb, "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync",
		"--locale=C", "--encoding=UTF8")
	create.Dir, create.SysProcAttr = dir, attr
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	var p *postgresServer
	for range 3 { // another process may take the port
		if p, err = startPostgres(server, dir, data, attr); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return p, p.migrateTemplate()
})

// postgresDirs are the places where PostgreSQL's programs are looked for.
func postgresDirs() []string {
	return []string{os.Getenv("PGBIN"), "/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin"}
}

func startPostgres(server, dir, data string, attr *syscall.SysProcAttr) (*postgresServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// There is no socket file, because its path may be too long. Commits are not
	// durable: the databases end with the tests.
	cmd := exec.Command(server, "-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "synchronous_commit=off", "-c", "max_connections=300", "-c", "shared_buffers=32MB")
	cmd.Dir = dir
	own := *attr // start changes it
	cmd.SysProcAttr = &own
	run, err := start(cmd, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	p := &postgresServer{port: port}
	if p.admin, err = sql.Open("pgx", p.url("postgres")); err != nil {
		return nil, err
	}
	if err := run.until(p.admin.PingContext); err != nil {
		_ = p.admin.Close()
		return nil, err
	}
	go func() {
		<-run.done
		_ = p.admin.Close()
	}()
	return p, nil
}

func (p *postgresServer) migrateTemplate() error {
	ctx := context.Background() // all tests share the database, so no test's context fits
	if _, err := p.admin.ExecContext(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	// The data directory only makes the configuration complete.
	cfg := storage.Config{DataDir: filepath.Join(farm.dir, "template"), DatabaseURL: p.url(template)}
	s, err := storage.Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := s.Migrate(ctx); err != nil {
		_ = s.Close()
		return err
	}
	return s.Close()
}

// otherThanRoot returns how to start a program as a user that PostgreSQL accepts. It
// makes that user the owner of dir.
func otherThanRoot(dir string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("a user to run PostgreSQL as: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return asUser(uint32(uid), uint32(gid)), nil
}

package storagetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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

	"tideline/ent/migrate/migrations"
	"tideline/storage"
)

// template is the name of the migrated database from which every other one is copied.
const template = "migrated"

// leftBehind is how many databases of finished tests stay until the server stops. Each has some 8
// MB. Dropping one makes PostgreSQL write everything that it has in memory.
const leftBehind = 32

// PostgresURL returns the URL of a new, migrated database on the PostgreSQL server of this test
// binary. It is dropped after the test, except the first leftBehind databases, which stay until the
// server stops.
func PostgresURL(t testing.TB) string { return newDatabase(t, template) }

// EmptyPostgresURL is PostgresURL for a database without tables.
func EmptyPostgresURL(t testing.TB) string { return newDatabase(t, "template0") }

func newDatabase(t testing.TB, source string) string {
	t.Helper()
	p, err := postgres()
	if err != nil {
		Missing(t, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.databases++
	name := fmt.Sprintf("test%d", p.databases)
	_, err = p.admin.ExecContext(t.Context(), fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s%s", name, source, p.strategy))
	require.NoError(t, err)
	if p.databases <= leftBehind {
		return p.url(name)
	}
	t.Cleanup(func() {
		// The context of the test has ended by now.
		_, err := p.admin.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(t, err)
	})
	return p.url(name)
}

// postgresServer is the PostgreSQL server of the test binary.
type postgresServer struct {
	run   *process
	port  int
	admin *sql.DB
	// strategy makes CREATE DATABASE copy the files of the template. By default, PostgreSQL 15 and
	// later write each page to the log instead, which takes twice the time: 190 instead of 80 ms of
	// processor time for a migrated database.
	strategy string

	mu        sync.Mutex
	databases int
}

// url sets a longer connection timeout than the default of the product: while other tests run, a
// healthy server may need seconds to accept a connection.
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
	if kept := keptData(server); kept != "" && copyData(kept, data) == nil {
		return startAnywhere(server, dir, data, attr)
	}
	create := exec.Command(initdb, "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync",
		"--locale=C", "--encoding=UTF8")
	create.Dir, create.SysProcAttr = dir, attr
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	p, err := startAnywhere(server, dir, data, attr)
	if err != nil {
		return nil, err
	}
	if err := p.migrateTemplate(); err != nil {
		return nil, err
	}
	kept := keptData(server)
	if kept == "" {
		return p, nil
	}
	// The files are complete only after an orderly shutdown.
	p.run.signal(syscall.SIGINT)
	if err := keepData(data, kept); err != nil {
		return nil, err
	}
	return startAnywhere(server, dir, data, attr)
})

// keptData returns the directory that keeps the files of a server with a migrated template for
// other test binaries. It is below the directory TIDELINE_TEST_CACHE, and its name depends on the
// server version and the migrations. It returns "" if the variable is not set, or if the version or
// the migrations cannot be read.
func keptData(server string) string {
	cache := os.Getenv("TIDELINE_TEST_CACHE")
	version, err := exec.Command(server, "--version").Output()
	if cache == "" || err != nil {
		return ""
	}
	sum := sha256.New()
	sum.Write(version)
	err = fs.WalkDir(migrations.FS, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, file)
		sum.Write([]byte(file))
		sum.Write(text)
		return err
	})
	if err != nil {
		return ""
	}
	return filepath.Join(cache, fmt.Sprintf("postgres-%x", sum.Sum(nil)[:8]))
}

// copyData copies the files and keeps their owners.
func copyData(from, to string) error { return exec.Command("cp", "-a", from, to).Run() }

// keepData copies the files of a stopped server to the directory kept. If another test binary was
// faster, its copy stays.
func keepData(data, kept string) error {
	if err := os.MkdirAll(filepath.Dir(kept), 0o711); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(kept), "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	copied := filepath.Join(dir, "data")
	if err := copyData(data, copied); err != nil {
		return fmt.Errorf("keep PostgreSQL's files: %w", err)
	}
	if err := os.Rename(copied, kept); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// startAnywhere starts a server. It tries up to three times, because another process may take the
// port first.
func startAnywhere(server, dir, data string, attr *syscall.SysProcAttr) (p *postgresServer, err error) {
	for range 3 {
		if p, err = startPostgres(server, dir, data, attr); err == nil {
			break
		}
	}
	return p, err
}

// postgresDirs returns the directories in which PostgreSQL's programs may be, as patterns for
// filepath.Glob.
func postgresDirs() []string {
	return []string{os.Getenv("PGBIN"), "/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin"}
}

func startPostgres(server, dir, data string, attr *syscall.SysProcAttr) (*postgresServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// There is no socket file, because its path may be too long. Commits need not be durable,
	// because the databases end with the tests.
	cmd := exec.Command(server, "-D", data, "-p", strconv.Itoa(port), "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "synchronous_commit=off", "-c", "max_connections=300", "-c", "shared_buffers=32MB")
	cmd.Dir = dir
	own := *attr // start modifies it
	cmd.SysProcAttr = &own
	run, err := start(cmd, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	p := &postgresServer{port: port, run: run}
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
	var version int
	if err := p.admin.QueryRow("SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return nil, err
	}
	if version >= 150000 {
		p.strategy = " STRATEGY file_copy"
	}
	return p, nil
}

func (p *postgresServer) migrateTemplate() error {
	ctx := context.Background() // all tests share the database, so no test owns the context
	if _, err := p.admin.ExecContext(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	// Open requires a data directory where no Redis URL is set. The in-process Redis that it starts
	// there is not used.
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

// otherThanRoot returns attributes that run a program as a user that PostgreSQL accepts, and makes
// that user the owner of dir.
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

package storagetest

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
)

// RedisServer is a redis-server of one test. It persists nothing: after Kill and
// Start it is empty.
type RedisServer struct {
	dir string
	run *process
}

// StartRedis starts a redis-server that ends with the test. It skips the test
// when none is installed.
func StartRedis(t testing.TB) *RedisServer {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		missing(t, err)
	}
	dir, err := newDir("r")
	require.NoError(t, err)
	r := &RedisServer{dir: dir}
	r.Start(t)
	servers.Store(r.URL(), r)
	t.Cleanup(func() {
		servers.Delete(r.URL())
		r.Kill()
	})
	return r
}

// servers has the *RedisServer of every URL.
var servers sync.Map

// Redis returns the redis-server behind s, to kill and start it. It skips the
// test when s has none of its own, as the embedded setup.
func Redis(t testing.TB, s *storage.Stores) *RedisServer {
	t.Helper()
	r, ok := servers.Load(Config(s).RedisURL)
	if !ok {
		t.Skip("needs a redis-server of its own")
	}
	return r.(*RedisServer)
}

// URL is the address of the server for storage and for child processes. It stays
// the same when the server is started again.
func (r *RedisServer) URL() string { return "unix://" + r.socket() }

func (r *RedisServer) socket() string { return filepath.Join(r.dir, "s") }

// Kill ends the server at once, as a crash does. It does nothing when the server
// does not run.
func (r *RedisServer) Kill() { r.run.signal(syscall.SIGKILL) }

// Freeze stops the server in its tracks until Thaw: it takes connections and
// answers none.
func (r *RedisServer) Freeze() { _ = r.run.cmd.Process.Signal(freeze) }

// Thaw ends Freeze.
func (r *RedisServer) Thaw() { _ = r.run.cmd.Process.Signal(thaw) }

// Start starts the server again after Kill, empty, and waits until it answers.
func (r *RedisServer) Start(t testing.TB) {
	t.Helper()
	path, err := find("redis-server")
	require.NoError(t, err)
	cmd := exec.Command(path, "--port", "0", "--unixsocket", r.socket(), "--save", "", "--appendonly", "no")
	cmd.Dir = r.dir
	r.run, err = start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	require.NoError(t, r.run.until(func(ctx context.Context) error {
		return probe(ctx, "unix", r.socket())
	}))
}

// Restart is Kill and Start.
func (r *RedisServer) Restart(t testing.TB) {
	t.Helper()
	r.Kill()
	r.Start(t)
}

// probe asks a server once, without retries: their pauses are longer than the start
// of the server.
func probe(ctx context.Context, network, addr string) error {
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	return c.Ping(ctx).Err()
}

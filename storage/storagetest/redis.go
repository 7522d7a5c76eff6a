package storagetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage"
)

// RedisServer is the redis-server of one test. It saves data only on request: after Kill and Start
// it is empty, or in the state of the last Snapshot.
type RedisServer struct {
	dir string
	run *process
}

// StartRedis starts a redis-server that ends with the test. It skips the test if redis-server is
// not installed.
func StartRedis(t testing.TB) *RedisServer {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		Missing(t, err)
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

// servers maps every URL to its *RedisServer.
var servers sync.Map

// Redis returns the redis-server of s, for tests that kill and start it. It skips the test if s has
// no redis-server of its own, as in the embedded setup.
func Redis(t testing.TB, s *storage.Stores) *RedisServer {
	t.Helper()
	r, ok := servers.Load(Config(s).RedisURL)
	if !ok {
		t.Skip("needs a redis-server of its own")
	}
	return r.(*RedisServer)
}

// URL returns the address of the server for storage and for child processes. It stays the same
// after a restart.
func (r *RedisServer) URL() string { return "unix://" + r.socket() }

func (r *RedisServer) socket() string { return filepath.Join(r.dir, "s") }

// Kill kills the server, like a crash. It has no effect if the server does not run.
func (r *RedisServer) Kill() { r.run.signal(syscall.SIGKILL) }

// Freeze suspends the server until Thaw: it accepts connections but does not answer.
func (r *RedisServer) Freeze() { _ = r.run.cmd.Process.Signal(freeze) }

// Thaw ends Freeze.
func (r *RedisServer) Thaw() { _ = r.run.cmd.Process.Signal(thaw) }

// Snapshot saves the data with which Start begins.
func (r *RedisServer) Snapshot(t testing.TB) {
	t.Helper()
	require.NoError(t, r.do(t, "SAVE"))
}

// Follow makes the server a replica of master, and waits until it has the same data.
func (r *RedisServer) Follow(t testing.TB, master *RedisServer) {
	t.Helper()
	port, err := freePort() // replicas do not connect to sockets
	require.NoError(t, err)
	require.NoError(t, master.do(t, "CONFIG", "SET", "port", port))
	require.NoError(t, r.do(t, "REPLICAOF", "127.0.0.1", port))
	require.NoError(t, master.run.until(func(ctx context.Context) error {
		c := clientOf(master)
		defer c.Close()
		// The replication link may break and start again, so the replica must acknowledge a write.
		if err := c.Set(ctx, "followed", 1, 0).Err(); err != nil {
			return err
		}
		n, err := c.Wait(ctx, 1, 100*time.Millisecond).Result()
		if err == nil && n == 0 {
			err = errors.New("the replica does not follow yet")
		}
		return err
	}))
}

// Promote makes a replica a master. It receives no further data from its old master.
func (r *RedisServer) Promote(t testing.TB) {
	t.Helper()
	require.NoError(t, r.do(t, "REPLICAOF", "NO", "ONE"))
}

// TakeOver kills another server and takes over its address, so its clients connect to this server.
func (r *RedisServer) TakeOver(t testing.TB, other *RedisServer) {
	t.Helper()
	other.Kill()
	require.NoError(t, os.Rename(r.socket(), other.socket()))
}

func (r *RedisServer) do(t testing.TB, command ...any) error {
	c := clientOf(r)
	defer c.Close()
	return c.Do(t.Context(), command...).Err()
}

// clientOf is no method: each package that uses a RedisServer would compile the methods of redis.Client.
func clientOf(r *RedisServer) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: r.socket()})
}

// Start starts the server again after Kill, and waits until it answers.
func (r *RedisServer) Start(t testing.TB) {
	t.Helper()
	path, err := find("redis-server")
	require.NoError(t, err)
	cmd := exec.Command(path, "--port", "0", "--unixsocket", r.socket(), "--save", "", "--appendonly", "no",
		"--enable-debug-command", "yes")
	cmd.Dir = r.dir
	r.run, err = start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	require.NoError(t, r.run.until(func(ctx context.Context) error {
		return probe(ctx, "unix", r.socket())
	}))
}

// RollBack resets a redis-server to its last SAVE, in place, and closes all other connections. The
// effect is the same as a crash and a restart from the file, but it happens at one moment and
// within milliseconds. Afterwards the server has another incarnation.
func RollBack(ctx context.Context, server *redis.Client) error {
	_, err := server.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "DEBUG", "RELOAD", "NOSAVE")
		p.Do(ctx, "DEBUG", "CHANGE-REPL-ID")
		p.ClientKillByFilter(ctx, "TYPE", "pubsub")
		p.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes")
		return nil
	})
	return err
}

// Restart is Kill and Start.
func (r *RedisServer) Restart(t testing.TB) {
	t.Helper()
	r.Kill()
	r.Start(t)
}

// probe pings a server once, without retries: their pauses are longer than the start of the server.
func probe(ctx context.Context, network, addr string) error {
	c := redis.NewClient(&redis.Options{Network: network, Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	return c.Ping(ctx).Err()
}

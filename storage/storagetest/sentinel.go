package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// SentinelRedis is a Redis master with a replica and a Sentinel. The Sentinel promotes the replica
// when the master has been silent for a second.
type SentinelRedis struct {
	master   *process
	sentinel int // port of the Sentinel
}

// sentinelName is the name of the master that the Sentinel watches.
const sentinelName = "feeds"

// StartSentinel starts the three servers, which end with the test. It skips the test if
// redis-server is not installed.
func StartSentinel(t testing.TB) *SentinelRedis {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		Missing(t, err)
	}
	var s *SentinelRedis
	var err error
	for range 3 { // another process may take a port
		if s, err = startSentinel(t); err == nil {
			return s
		}
	}
	require.NoError(t, err)
	return nil
}

func startSentinel(t testing.TB) (*SentinelRedis, error) {
	master, run, err := startSentinelNode(t)
	if err != nil {
		return nil, err
	}
	primary := redis.NewClient(&redis.Options{Addr: localAddr(master)})
	defer primary.Close()
	_, replica, err := startSentinelNode(t, "--replicaof", "127.0.0.1", strconv.Itoa(master))
	if err != nil {
		return nil, err
	}
	err = replica.until(func(ctx context.Context) error {
		// WAIT counts the replicas that have all writes.
		if n, err := primary.Wait(ctx, 1, startTimeout).Result(); err != nil || n == 1 {
			return err
		}
		return errors.New("no replica")
	})
	if err != nil {
		return nil, err
	}
	port, sentinel, err := startSentinelNode(t, "--sentinel", "monitor", sentinelName, "127.0.0.1", strconv.Itoa(master), "1",
		"--sentinel", "down-after-milliseconds", sentinelName, "1000")
	if err != nil {
		return nil, err
	}
	watcher := redis.NewSentinelClient(&redis.Options{Addr: localAddr(port)})
	defer watcher.Close()
	err = sentinel.until(func(ctx context.Context) error {
		replicas, err := watcher.Replicas(ctx, sentinelName).Result()
		if err == nil && len(replicas) != 1 {
			err = errors.New("the Sentinel knows no replica")
		}
		return err
	})
	return &SentinelRedis{master: run, sentinel: port}, err
}

// startSentinelNode starts a redis-server on a free port. With --sentinel as the first argument, it
// starts a Sentinel.
func startSentinelNode(t testing.TB, args ...string) (port int, p *process, err error) {
	path, err := find("redis-server")
	if err != nil {
		return 0, nil, err
	}
	dir, err := newDir("n")
	if err != nil {
		return 0, nil, err
	}
	if port, err = freePort(); err != nil {
		return 0, nil, err
	}
	// A Sentinel writes what it learns into its configuration.
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return 0, nil, err
	}
	all := []string{file, "--bind", "127.0.0.1", "--port", strconv.Itoa(port)}
	if len(args) == 0 || args[0] != "--sentinel" {
		all = append(all, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	}
	cmd := exec.Command(path, append(all, args...)...)
	cmd.Dir = dir
	if p, err = start(cmd, syscall.SIGKILL); err != nil {
		return 0, nil, err
	}
	t.Cleanup(func() { p.signal(syscall.SIGKILL) })
	return port, p, p.until(func(ctx context.Context) error { return probe(ctx, "tcp", localAddr(port)) })
}

// URL returns a Redis URL that names the Sentinel, and a second one that does not run.
func (s *SentinelRedis) URL() string {
	return fmt.Sprintf("redis://127.0.0.1:1,%s?master_name=%s", localAddr(s.sentinel), sentinelName)
}

// KillMaster kills the first master, like a crash. The Sentinel soon promotes the replica.
func (s *SentinelRedis) KillMaster() { s.master.signal(syscall.SIGKILL) }

func localAddr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

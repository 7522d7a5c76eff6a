package storagetest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// clusterTurn is locked by the test that uses the cluster.
var clusterTurn sync.Mutex

// ClusterURL returns the URL of an empty Redis Cluster of three masters. Tests
// that use it take turns: it waits until the previous one has ended.
func ClusterURL(t testing.TB) string {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		missing(t, err)
	}
	clusterTurn.Lock()
	t.Cleanup(clusterTurn.Unlock)
	nodes, err := cluster()
	require.NoError(t, err)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: nodes})
	defer rdb.Close()
	require.NoError(t, flush(t.Context(), rdb))
	return "redis://" + strings.Join(nodes, ",")
}

// cluster starts the one cluster of the test binary and returns the addresses
// of its nodes.
var cluster = sync.OnceValues(func() ([]string, error) {
	var err error
	for range 3 { // another process may take a port
		var addrs []string
		if addrs, err = startCluster(); err == nil {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("start a Redis Cluster: %w", err)
})

func startCluster() (addrs []string, err error) {
	var started []*process
	defer func() {
		if err != nil {
			for _, p := range started {
				p.signal(syscall.SIGKILL)
			}
		}
	}()
	var nodes []*redis.Client
	var buses []int
	for range clusterMasters {
		port, bus, p, err := startNode()
		if err != nil {
			return nil, err
		}
		started, buses = append(started, p), append(buses, bus)
		addr := "127.0.0.1:" + strconv.Itoa(port)
		if err := p.until(func(ctx context.Context) error { return probe(ctx, "tcp", addr) }); err != nil {
			return nil, err
		}
		node := redis.NewClient(&redis.Options{Addr: addr})
		defer node.Close()
		nodes, addrs = append(nodes, node), append(addrs, addr)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for i, node := range nodes {
		first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
		for _, command := range [][]any{
			{"CLUSTER", "ADDSLOTSRANGE", first, last},
			{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
			// Each node meets the first, which introduces it to the others.
			{"CLUSTER", "MEET", "127.0.0.1", portOf(addrs[0]), buses[0]},
		} {
			if err := node.Do(ctx, command...).Err(); err != nil {
				return nil, fmt.Errorf("%v: %w", command, err)
			}
		}
	}
	for i, node := range nodes {
		if err := started[i].until(func(ctx context.Context) error { return joined(ctx, node) }); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

func startNode() (port, bus int, p *process, err error) {
	path, err := find("redis-server")
	if err != nil {
		return 0, 0, nil, err
	}
	dir, err := newDir("c")
	if err != nil {
		return 0, 0, nil, err
	}
	if port, err = freePort(); err != nil {
		return 0, 0, nil, err
	}
	if bus, err = freePort(); err != nil {
		return 0, 0, nil, err
	}
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--cluster-enabled", "yes",
		"--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "2000", "--save", "", "--appendonly", "no")
	cmd.Dir = dir
	p, err = start(cmd, syscall.SIGKILL)
	return port, bus, p, err
}

// joined reports whether the node knows all others and the owners of all slots.
func joined(ctx context.Context, node *redis.Client) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_size:%d", clusterMasters)} {
		if !strings.Contains(info, want) {
			return errors.New("no " + want)
		}
	}
	return nil
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

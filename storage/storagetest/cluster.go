package storagetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const clusterSlots = 16384

// clusterTurn is held by the test that uses the shared cluster.
var clusterTurn sync.Mutex

// ClusterURL returns the URL of an empty Redis Cluster of three masters. Tests share the cluster
// and take turns: ClusterURL waits until the previous test has ended.
func ClusterURL(t testing.TB) string {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		Missing(t, err)
	}
	clusterTurn.Lock()
	t.Cleanup(clusterTurn.Unlock)
	c, err := sharedCluster()
	require.NoError(t, err)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs()})
	defer rdb.Close()
	require.NoError(t, flush(t.Context(), rdb))
	return c.URL()
}

// sharedCluster starts the cluster that the tests of a binary share.
var sharedCluster = sync.OnceValues(func() (*Cluster, error) { return startCluster(3) })

// Cluster is the Redis Cluster of one test. Its masters save data only on request.
type Cluster struct {
	nodes []*node
}

// StartCluster starts a Redis Cluster of three masters that ends with the test. It skips the test
// if redis-server is not installed.
func StartCluster(t testing.TB) *Cluster { return StartClusterOf(t, 3) }

// StartClusterOf is StartCluster for a given number of masters.
func StartClusterOf(t testing.TB, masters int) *Cluster {
	t.Helper()
	if _, err := find("redis-server"); err != nil {
		Missing(t, err)
	}
	c, err := startCluster(masters)
	require.NoError(t, err)
	t.Cleanup(c.kill)
	return c
}

// URL returns a Redis URL that names all masters.
func (c *Cluster) URL() string { return "redis://" + strings.Join(c.addrs(), ",") }

func (c *Cluster) addrs() (addrs []string) {
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr())
	}
	return addrs
}

// Restart kills the master at addr and starts it again, from its last SAVE or empty. It waits until
// the cluster is complete again, which takes two seconds.
func (c *Cluster) Restart(t testing.TB, addr string, fromSave bool) {
	t.Helper()
	for _, n := range c.nodes {
		if n.addr() == addr {
			n.run.signal(syscall.SIGKILL)
			require.NoError(t, n.start(fromSave))
		}
	}
	require.NoError(t, c.await())
}

// Grow adds a master without slots and returns its address. It takes two seconds.
func (c *Cluster) Grow(t testing.TB) string {
	t.Helper()
	n, err := newNode()
	require.NoError(t, err)
	c.nodes = append(c.nodes, n)
	require.NoError(t, n.start(false))
	require.NoError(t, n.meet(c.nodes[0]))
	require.NoError(t, c.await())
	return n.addr()
}

// Move moves the slot of a key to the master at addr, key by key, like a cluster that grows.
func (c *Cluster) Move(t testing.TB, key, addr string) {
	t.Helper()
	ctx := t.Context()
	clients, ids := map[string]*redis.Client{}, map[string]string{}
	for _, n := range c.nodes {
		client := redis.NewClient(&redis.Options{Addr: n.addr()})
		defer client.Close()
		id, err := client.Do(ctx, "CLUSTER", "MYID").Text()
		require.NoError(t, err)
		clients[n.addr()], ids[n.addr()] = client, id
	}
	to := clients[addr]
	slot, err := to.ClusterKeySlot(ctx, key).Result()
	require.NoError(t, err)
	shards, err := to.ClusterShards(ctx).Result()
	require.NoError(t, err)
	owner := ""
	for _, shard := range shards {
		for _, r := range shard.Slots {
			if r.Start <= slot && slot <= r.End {
				owner = "127.0.0.1:" + strconv.FormatInt(shard.Nodes[0].Port, 10)
			}
		}
	}
	if owner == addr {
		return
	}
	from := clients[owner]
	require.NoError(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner]).Err())
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[addr]).Err())
	for {
		keys, err := from.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		require.NoError(t, err)
		if len(keys) == 0 {
			break
		}
		err = from.Do(ctx, "MIGRATE", "127.0.0.1", portOf(addr), keys[0], 0, 5000, "REPLACE").Err()
		require.NoError(t, err)
	}
	for _, client := range append([]*redis.Client{to, from}, slices.Collect(maps.Values(clients))...) {
		require.NoError(t, client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[addr]).Err())
	}
}

func (c *Cluster) kill() {
	for _, n := range c.nodes {
		if n.run != nil {
			n.run.signal(syscall.SIGKILL)
		}
	}
}

// startCluster starts the masters of a cluster and waits until each knows the others.
func startCluster(masters int) (*Cluster, error) {
	var err error
	for range 3 { // another process may take a port
		c := &Cluster{}
		if err = c.start(masters); err == nil {
			return c, nil
		}
		c.kill()
	}
	return nil, fmt.Errorf("start a Redis Cluster: %w", err)
}

func (c *Cluster) start(masters int) error {
	for i := range masters {
		n, err := newNode()
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		if err := n.start(false); err != nil {
			return err
		}
		first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		for _, command := range [][]any{
			{"CLUSTER", "ADDSLOTSRANGE", first, last},
			{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
		} {
			if err := n.do(command...); err != nil {
				return err
			}
		}
		// Each node meets the first, which introduces it to the others.
		if err := n.meet(c.nodes[0]); err != nil {
			return err
		}
	}
	return c.await()
}

// await waits until each node knows all others and the owners of all slots.
func (c *Cluster) await() error {
	for _, n := range c.nodes {
		if err := n.run.until(func(ctx context.Context) error {
			return n.says(ctx, "cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes)))
		}); err != nil {
			return err
		}
	}
	return nil
}

// node is a redis-server of a cluster.
type node struct {
	dir       string
	port, bus int
	run       *process
}

func newNode() (n *node, err error) {
	n = &node{}
	if n.dir, err = newDir("c"); err != nil {
		return nil, err
	}
	if n.port, err = freePort(); err != nil {
		return nil, err
	}
	n.bus, err = freePort()
	return n, err
}

func (n *node) addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// start starts the node, from its last SAVE or empty, and waits until it answers.
func (n *node) start(fromSave bool) (err error) {
	path, err := find("redis-server")
	if err != nil {
		return err
	}
	if saved := filepath.Join(n.dir, "dump.rdb"); !fromSave && os.Rename(saved, saved+".aside") == nil {
		defer func() { err = errors.Join(err, os.Rename(saved+".aside", saved)) }() // keep the file for the next start
	}
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", strconv.Itoa(n.port), "--cluster-enabled", "yes",
		"--cluster-port", strconv.Itoa(n.bus), "--cluster-node-timeout", "2000", "--save", "", "--appendonly", "no",
		"--enable-debug-command", "yes")
	cmd.Dir = n.dir
	if n.run, err = start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	return n.run.until(func(ctx context.Context) error { return probe(ctx, "tcp", n.addr()) })
}

func (n *node) meet(other *node) error {
	return n.do("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus)
}

func (n *node) do(command ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := redis.NewClient(&redis.Options{Addr: n.addr()})
	defer c.Close()
	if err := c.Do(ctx, command...).Err(); err != nil {
		return fmt.Errorf("%v: %w", command, err)
	}
	return nil
}

// says returns an error unless the node's CLUSTER INFO contains all of the texts.
func (n *node) says(ctx context.Context, all ...string) error {
	c := redis.NewClient(&redis.Options{Addr: n.addr()})
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	for _, want := range all {
		if err == nil && !strings.Contains(info, want) {
			err = errors.New("no " + want)
		}
	}
	return err
}

func portOf(addr string) string { return addr[strings.LastIndex(addr, ":")+1:] }

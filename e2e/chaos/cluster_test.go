package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

const (
	masters = 3
	slots   = 16384
)

// cluster is a Redis Cluster of three masters with a replica each. All that connect
// to a node, its replica included, go through the node's proxy.
type cluster struct {
	nodes []*node
}

// node is one redis-server. Its client does not go through the proxy.
type node struct {
	*storagetest.Program
	name      string
	id        string // in the cluster
	dir       string
	port, bus int
	args      []string
	proxy     *storagetest.Proxy
	client    *redis.Client
}

// shard is a master and its replica, nil when it has none.
type shard struct{ master, replica *node }

// newCluster starts the cluster. fullCoverage is the setting of Redis by which
// everything is refused while some slot has no master.
func newCluster(t *testing.T, fullCoverage bool) *cluster {
	t.Helper()
	path := storagetest.ProgramPath(t, "redis-server")
	c := &cluster{}
	for i := range 2 * masters {
		n := &node{name: fmt.Sprint("redis", i), dir: storagetest.ProgramDir(t, "n"), port: storagetest.FreePort(t), bus: storagetest.FreePort(t)}
		n.Program = storagetest.NewProgram(n.dir, syscall.SIGKILL)
		n.proxy = startProxy(t, n.addr, byGreeting)
		_, port, err := net.SplitHostPort(n.proxy.Addr)
		require.NoError(t, err)
		n.client = redis.NewClient(&redis.Options{Addr: n.addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = n.client.Close() })
		coverage := "no"
		if fullCoverage {
			coverage = "yes"
		}
		n.args = []string{path, "--bind", "127.0.0.1", "--port", strconv.Itoa(n.port), "--save", "", "--appendonly", "no",
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(n.bus), "--cluster-node-timeout", "2000",
			"--cluster-announce-ip", "127.0.0.1", "--cluster-announce-port", port,
			"--cluster-announce-bus-port", strconv.Itoa(n.bus), "--cluster-replica-validity-factor", "0",
			"--cluster-allow-replica-migration", "no", "--cluster-require-full-coverage", coverage, "--repl-diskless-sync-delay", "0"}
		require.NoError(t, n.start())
		t.Cleanup(n.Kill)
		c.nodes = append(c.nodes, n)
	}
	ctx := t.Context()
	for i, n := range c.nodes {
		if i < masters {
			require.NoError(t, n.client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
			require.NoError(t, n.client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		}
		require.NoError(t, n.client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", c.nodes[0].port, c.nodes[0].bus).Err())
		id, err := n.client.Do(ctx, "CLUSTER", "MYID").Text()
		require.NoError(t, err)
		n.id = id
	}
	for i, n := range c.nodes[masters:] {
		replicate := func() error { return n.client.ClusterReplicate(ctx, c.nodes[i].id).Err() }
		require.NoError(t, eventually(ctx, time.Minute, replicate)) // the nodes have to learn of each other
	}
	require.NoError(t, c.awaitWhole(ctx))
	return c
}

func (n *node) addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// start starts the node with the dump that it has, if any.
func (n *node) start() error {
	return n.Start(exec.Command(n.args[0], n.args[1:]...), func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.addr())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
			return err
		}
		answer, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && answer != "+PONG\r\n" {
			err = errors.New(answer) // such as -LOADING
		}
		return err
	})
}

// forget removes the dump, so that the node starts empty.
func (n *node) forget() { _ = os.Remove(filepath.Join(n.dir, "dump.rdb")) }

// url is what the process of that name connects to.
func (c *cluster) url(name string) string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.proxy.Addr)
	}
	return "redis://" + strings.Join(addrs, ",") + "?client_name=" + name
}

// shards returns the masters with slots, ordered by their first slot, and their
// replicas, as a node that answers sees it.
func (c *cluster) shards(ctx context.Context) ([]shard, error) {
	var errs []error
	for _, n := range c.nodes {
		text, err := n.ask(ctx, "CLUSTER", "NODES")
		if err == nil && strings.Contains(text, " connected") {
			return c.parse(text), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// parse reads lines such as
//
//	id ip:port@cport flags master ping pong epoch connected slot-slot slot
func (c *cluster) parse(text string) (all []shard) {
	first := map[*node]int{}
	replicas := map[string]*node{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		n := c.byID(f[0])
		if n == nil || strings.Contains(f[2], "fail") {
			continue
		}
		if f[3] != "-" {
			replicas[f[3]] = n
		} else if len(f) > 8 && f[8][0] != '[' {
			from, _, _ := strings.Cut(f[8], "-")
			first[n], _ = strconv.Atoi(from)
			all = append(all, shard{master: n})
		}
	}
	for i := range all {
		all[i].replica = replicas[all[i].master.id]
	}
	slices.SortFunc(all, func(a, b shard) int { return first[a.master] - first[b.master] })
	return all
}

func (c *cluster) byID(id string) *node {
	for _, n := range c.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// ask bounds a command: a node may be stopped.
func (n *node) ask(ctx context.Context, command ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return n.client.Do(ctx, command...).Text()
}

// awaitWhole waits until all six nodes agree that all slots have a master, and each
// master has a replica that follows it.
func (c *cluster) awaitWhole(ctx context.Context) error {
	return eventually(ctx, 2*time.Minute, func() error {
		for _, n := range c.nodes {
			info, err := n.ask(ctx, "CLUSTER", "INFO")
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") ||
				!strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", masters)) {
				return fmt.Errorf("%s is not whole:\n%s", n.name, info)
			}
			replication, err := n.ask(ctx, "INFO", "replication")
			if err != nil {
				return err
			}
			if !strings.Contains(replication, "master_link_status:up") && !strings.Contains(replication, "state=online") {
				return fmt.Errorf("%s replicates nothing, and is not replicated:\n%s", n.name, replication)
			}
		}
		all, err := c.shards(ctx)
		if err == nil && len(all) != masters {
			err = fmt.Errorf("%d masters", len(all))
		}
		return err
	})
}

// eventually repeats what fails, for a bounded time.
func eventually(ctx context.Context, bound time.Duration, do func() error) error {
	for deadline := time.Now().Add(bound); ; {
		err := do()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// moveSlots moves slots that have keys from one master to another while they are
// used. It returns how many keys it moved.
func (c *cluster) moveSlots(ctx context.Context, from, to *node, most int) (keys int, err error) {
	text, err := from.ask(ctx, "CLUSTER", "MYID")
	if err != nil {
		return 0, err
	}
	used := map[int]bool{}
	for cursor := uint64(0); len(used) < most; {
		found, next, err := from.client.Scan(ctx, cursor, "*", 100).Result()
		if err != nil {
			return 0, err
		}
		for _, key := range found {
			slot, err := from.client.ClusterKeySlot(ctx, key).Result()
			if err != nil {
				return 0, err
			}
			if len(used) < most {
				used[int(slot)] = true
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for slot := range used {
		moved, err := moveSlot(ctx, slot, from, to, text)
		keys += moved
		if err != nil {
			return keys, fmt.Errorf("slot %d: %w", slot, err)
		}
	}
	return keys, nil
}

// moveSlot follows the steps of the manual of CLUSTER SETSLOT.
func moveSlot(ctx context.Context, slot int, from, to *node, fromID string) (keys int, err error) {
	if err := to.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		return 0, err
	}
	if err := from.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id).Err(); err != nil {
		return 0, err
	}
	for {
		found, err := from.client.ClusterGetKeysInSlot(ctx, slot, 10).Result()
		if err != nil {
			return keys, err
		}
		if len(found) == 0 {
			break
		}
		command := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS"}
		for _, key := range found {
			command = append(command, key)
		}
		if err := from.client.Do(ctx, command...).Err(); err != nil {
			return keys, err
		}
		keys += len(found)
	}
	for _, n := range []*node{to, from} {
		if err := n.client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.id).Err(); err != nil {
			return keys, err
		}
	}
	return keys, nil
}

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

// cluster is a Redis Cluster of three masters with one replica each. All connections to a
// node, including its replica's, go through the node's proxy.
type cluster struct {
	nodes []*node
}

// node is a redis-server process. Its client bypasses the proxy.
type node struct {
	*storagetest.Program
	name      string
	id        string // the cluster node id
	dir       string
	port, bus int
	args      []string
	proxy     *storagetest.Proxy
	client    *redis.Client
}

// shard is a master and its replica. The replica is nil if there is none.
type shard struct{ master, replica *node }

// newCluster starts the cluster. With fullCoverage (cluster-require-full-coverage) the
// cluster refuses all commands while any slot has no master.
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
		require.NoError(t, eventually(ctx, time.Minute, replicate)) // fails until the nodes know each other
	}
	require.NoError(t, c.awaitWhole(ctx))
	return c
}

func (n *node) addr() string { return "127.0.0.1:" + strconv.Itoa(n.port) }

// start starts the node from its dump, if it has one.
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
			err = errors.New(answer) // for example -LOADING
		}
		return err
	})
}

// forget removes the dump, so that the node starts empty.
func (n *node) forget() { _ = os.Remove(filepath.Join(n.dir, "dump.rdb")) }

// url returns the Redis URL for the process of that name.
func (c *cluster) url(name string) string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.proxy.Addr)
	}
	return "redis://" + strings.Join(addrs, ",") + "?client_name=" + name
}

// shards returns the masters that own slots, with their replicas, ordered by first slot. It
// uses the view of the first node that answers and is connected.
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

// parse reads the output of CLUSTER NODES, with lines such as
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

// ask runs a command with a timeout of two seconds, because the node may be stopped.
func (n *node) ask(ctx context.Context, command ...any) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return n.client.Do(ctx, command...).Text()
}

// awaitWhole waits until all six nodes report that every slot has a master, and every master
// has a connected replica.
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

// eventually repeats do until it succeeds or the bound has passed, and returns the last error.
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

// moveSlots moves up to most slots that contain keys from one master to another while they
// are in use. It returns how many keys it moved.
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

// moveSlot moves one slot, following the steps in the Redis documentation of CLUSTER SETSLOT.
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

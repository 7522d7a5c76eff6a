package live_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

func closing[C redis.UniversalClient](t testing.TB, rdb C) C {
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// serverClient is a client of a redis-server.
func serverClient(t testing.TB, server *storagetest.RedisServer) *redis.Client {
	opt, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	return closing(t, redis.NewClient(opt))
}

// flush wipes every master.
func flush(t testing.TB, rdb redis.UniversalClient) {
	if c, ok := rdb.(*redis.ClusterClient); ok {
		require.NoError(t, c.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FlushAll(ctx).Err()
		}))
		return
	}
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
}

// network stands between a client and its servers, and can fail.
type network struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
}

type conn struct {
	net.Conn
	net    *network
	frozen chan struct{}
	freeze sync.Once
}

// through returns a client of the same servers behind a network that fails on
// demand.
func through(t testing.TB, rdb redis.UniversalClient) (redis.UniversalClient, *network) {
	n := &network{conns: make(map[*conn]struct{})}
	dial := func(next func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		if next == nil {
			next = new(net.Dialer).DialContext
		}
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := next(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			wrapped := &conn{Conn: c, net: n, frozen: make(chan struct{})}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.conns[wrapped] = struct{}{}
			return wrapped, nil
		}
	}
	switch c := rdb.(type) {
	case *redis.Client:
		opt := *c.Options()
		opt.Dialer = dial(opt.Dialer)
		opt.ReadTimeout = 500 * time.Millisecond
		return closing(t, redis.NewClient(&opt)), n
	case *redis.ClusterClient:
		opt := *c.Options()
		opt.Dialer = dial(opt.Dialer)
		opt.ReadTimeout = 500 * time.Millisecond
		return closing(t, redis.NewClusterClient(&opt)), n
	}
	require.FailNow(t, fmt.Sprintf("unexpected client %T", rdb))
	return nil, nil
}

// Read loses what arrives on a frozen connection. (It does not leave it with
// the server, which may wait for it to be taken.)
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		select {
		case <-c.frozen:
			if err == nil {
				continue
			}
			return 0, err
		default:
			return n, err
		}
	}
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns, c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// Freeze silences the connections there are; new ones work.
func (n *network) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.freeze.Do(func() { close(c.frozen) })
	}
}

// Cut breaks the connections there are; new ones work.
func (n *network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Conn.Close()
	}
}

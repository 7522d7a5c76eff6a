package storagetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tideline/internal/redisclient"
)

// Network is the network between a Redis client and its servers. It fails on demand.
type Network struct {
	mu    sync.Mutex
	away  bool
	conns map[*conn]struct{}
}

type conn struct {
	net.Conn
	net    *Network
	frozen chan struct{}
	freeze sync.Once
}

// Through returns a client of the same servers behind a Network. The client waits half a second for
// an answer.
func Through(t testing.TB, rdb redisclient.Client) (redisclient.Client, *Network) {
	n := &Network{conns: make(map[*conn]struct{})}
	var mine redisclient.Client
	switch c := rdb.(type) {
	case *redis.Client:
		opt := *c.Options()
		opt.Dialer, opt.ReadTimeout = n.dialer(opt.Dialer), 500*time.Millisecond
		mine = redis.NewClient(&opt)
	case *redis.ClusterClient:
		opt := *c.Options()
		opt.Dialer, opt.ReadTimeout = n.dialer(opt.Dialer), 500*time.Millisecond
		mine = redis.NewClusterClient(&opt)
	default:
		require.FailNow(t, fmt.Sprintf("unexpected client %T", rdb))
	}
	t.Cleanup(func() { _ = mine.Close() })
	return mine, n
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

func (n *Network) dialer(next dial) dial {
	if next == nil {
		next = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.away {
			_ = c.Close()
			return nil, errors.New("this network is away")
		}
		wrapped := &conn{Conn: c, net: n, frozen: make(chan struct{})}
		n.conns[wrapped] = struct{}{}
		return wrapped, nil
	}
}

// Read discards data that arrives on a frozen connection. It does not leave the data unread,
// because the server may block until it is read.
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

// Freeze silences the existing connections. New connections work.
func (n *Network) Freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.freeze.Do(func() { close(c.frozen) })
	}
}

// Cut closes the existing connections. New connections work.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutLocked()
}

func (n *Network) cutLocked() {
	for c := range n.conns {
		_ = c.Conn.Close()
	}
}

// Leave closes the existing connections and refuses new ones until Return.
func (n *Network) Leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away = true
	n.cutLocked()
}

// Return ends Leave.
func (n *Network) Return() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away = false
}

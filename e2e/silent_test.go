package e2e

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// proxy stands between a process and its Redis, and can fall silent.
type proxy struct {
	to    string
	links sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	all   []*link
}

// link is a connection through the proxy.
type link struct{ pubsub, silent atomic.Bool }

// newProxy returns a proxy of the server behind a socket file, and its address.
func newProxy(t *testing.T, to string) (*proxy, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{to: to}
	p.links.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(conn)
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.links.Wait()
	})
	return p, l.Addr().String()
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("unix", p.to)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	k := new(link)
	p.conns, p.all = append(p.conns, client, server), append(p.all, k)
	p.mu.Unlock()
	p.links.Go(func() { k.pass(server, client) })
	p.links.Go(func() { k.pass(client, server) })
}

// pass copies until one of the two ends. It takes and drops data for a silent one.
func (k *link) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("\r\nsubscribe\r\n")) {
			k.pubsub.Store(true)
		}
		if k.silent.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// silence stops all data of the present connections, or of those for pub/sub alone.
// They stay open, and new ones work.
func (p *proxy) silence(all bool) (silent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.all {
		if all || k.pubsub.Load() {
			k.silent.Store(true)
			silent++
		}
	}
	return silent
}

// The connection for pub/sub, or every connection to Redis, falls silent, as behind
// a firewall that has forgotten them. The process notices by itself, and no event
// of that time is lost.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"pub/sub": false, "everything": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stores := storagetest.Real(t)
			config := storagetest.Config(stores)
			between, address := newProxy(t, strings.TrimPrefix(config.RedisURL, "unix://"))
			start(t, settings(config), "worker", "--worker-addr=127.0.0.1:0")
			other := start(t, settings(config), "server", "--addr=127.0.0.1:0")
			config.RedisURL = "redis://" + address
			p := start(t, settings(config), "server", "--addr=127.0.0.1:0")
			ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
			ben.follow(t, p, ann)
			require.Eventually(t, func() bool { // otherwise it may change the posts that ben watches
				jobs, err := stores.DB.Job.Query().Count(t.Context())
				return err == nil && jobs == 0
			}, 30*time.Second, 10*time.Millisecond)
			f := ben.watch(t, p)
			ann.post(t, other, "one")
			f.added("one")

			require.NotZero(t, between.silence(all))
			begun := time.Now()
			ann.post(t, other, "two")
			events := f.added("two")
			t.Logf("told %v after the connection fell silent", time.Since(begun))
			require.Contains(t, p.out.String(), "lost the pub/sub connection")
			ann.post(t, other, "three")
			events = append(events, f.added("three")...)
			if !all {
				require.Len(t, events, 2, "nothing twice, and nothing to read again")
			}
		})
	}
}

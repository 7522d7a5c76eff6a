package storagetest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands between clients and a server, and can fall silent: like a firewall that
// has forgotten a connection, or a machine that hangs, it then takes all that either
// side sends, also on new connections, and passes nothing on.
type Proxy struct {
	// Addr is where clients connect to, as host:port.
	Addr string

	network, to string
	silent      atomic.Bool
	replaced    atomic.Pointer[[2][]byte] // what, and by what
	links       sync.WaitGroup
	mu          sync.Mutex
	conns       []net.Conn
}

// StartProxy returns a proxy of the server at the address to of the network, "tcp" or
// "unix". It ends with the test.
func StartProxy(t testing.TB, network, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: l.Addr().String(), network: network, to: to}
	p.links.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.link(client)
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
	return p
}

// Silence begins or ends the silence. What was swallowed does not come back.
func (p *Proxy) Silence(silent bool) { p.silent.Store(silent) }

// Replace has the proxy replace a text in what the server sends by another one of the same
// length.
func (p *Proxy) Replace(text, by string) { p.replaced.Store(&[2][]byte{[]byte(text), []byte(by)}) }

func (p *Proxy) link(client net.Conn) {
	server, err := net.Dial(p.network, p.to)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	p.links.Go(func() { p.pass(server, client, false) })
	p.links.Go(func() { p.pass(client, server, true) })
}

// pass copies until one of the two ends.
func (p *Proxy) pass(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.silent.Load() {
			continue
		}
		sent := buffer[:n]
		if r := p.replaced.Load(); r != nil && answers {
			sent = bytes.ReplaceAll(sent, r[0], r[1])
		}
		if _, err := to.Write(sent); err != nil {
			return
		}
	}
}

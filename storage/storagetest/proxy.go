package storagetest

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy forwards connections to a server and can disturb them in three ways. Silence discards
// the data that either side sends, like a firewall that has forgotten the connection. A cut
// delays the data until the cut is healed, like a pulled cable. A drop closes the connection.
//
// The client must be the first to send. All methods are safe for concurrent use.
type Proxy struct {
	// Addr is the address that clients connect to, as host:port.
	Addr string

	target  func() (network, address string)
	owner   Owner
	running sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // signals a change of cuts, or a dropped link
	silent   bool
	replaced [2][]byte // the old text and the new text
	cuts     map[string]bool
	links    map[*link]struct{}
}

// Owner derives the owner of a connection from the data that the client sends. The proxy calls it
// for each chunk from the client, with the current owner, which is "" at first. The proxy closes a
// connection that has no owner after a chunk from the client.
type Owner func(owner string, sent []byte) string

// OwnedBy returns an Owner that assigns all connections to name.
func OwnedBy(name string) Owner { return func(string, []byte) string { return name } }

// link is a connection through the proxy, guarded by the proxy's mutex. server is nil until it is
// dialled.
type link struct {
	owner           string
	client, server  net.Conn
	silent, dropped bool
}

// StartProxy starts a proxy for the server at the address to. The network is "tcp" or "unix".
// The proxy stops when the test ends.
func StartProxy(t testing.TB, network, to string) *Proxy {
	t.Helper()
	return StartProxyWithOwners(t, func() (string, string) { return network, to }, OwnedBy("client"))
}

// StartProxyWithOwners is like StartProxy, except that target returns the server's address for
// each new connection, and owner assigns connections to owners. A test can then disturb the
// connections of one owner.
func StartProxyWithOwners(t testing.TB, target func() (network, address string), owner Owner) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: l.Addr().String(), target: target, owner: owner, cuts: map[string]bool{}, links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Drop("")
		p.running.Wait()
	})
	return p
}

// Silence starts or ends the silence of all connections, including new ones. Discarded data is
// lost.
func (p *Proxy) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// SilencePresent permanently silences the owner's current connections, or all current connections
// if the owner is "". New connections work. It returns how many connections it silenced.
func (p *Proxy) SilencePresent(owner string) (silenced int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if owner == "" || l.owner == owner {
			l.silent = true
			silenced++
		}
	}
	return silenced
}

// Replace makes the proxy replace a text in the server's data with another text of the same
// length.
func (p *Proxy) Replace(text, by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaced = [2][]byte{[]byte(text), []byte(by)}
}

// Cut delays all data on the owner's connections, including new ones, until Heal.
func (p *Proxy) Cut(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts[owner] = true
}

// Heal ends a cut and forwards the delayed data.
func (p *Proxy) Heal(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cuts, owner)
	p.changed.Broadcast()
}

// Drop closes the owner's connections, or all connections if the owner is "". Delayed data is
// lost.
func (p *Proxy) Drop(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if owner == "" || l.owner == owner {
			p.endLocked(l)
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer p.end(l)
	buffer := make([]byte, 64<<10)
	n, err := client.Read(buffer)
	if err != nil {
		return
	}
	first, ok := p.admit(l, true, buffer[:n])
	if !ok {
		return
	}
	network, address := p.target()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	p.mu.Lock()
	l.server = server
	if l.dropped {
		server.Close()
	}
	p.mu.Unlock()
	if _, err := server.Write(first); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(l, client, server) })
	both.Go(func() { p.pass(l, server, client) })
	both.Wait()
}

// pass copies one direction until either side closes, and then closes both sides.
func (p *Proxy) pass(l *link, from, to net.Conn) {
	defer p.end(l)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		sent, ok := p.admit(l, from == l.client, buffer[:n])
		if !ok {
			return
		}
		if len(sent) > 0 {
			if _, err := to.Write(sent); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// admit waits while the owner is cut off, and then returns the data to forward in place of piece.
// ok is false if the link is dropped or has no owner.
func (p *Proxy) admit(l *link, fromClient bool, piece []byte) (pass []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fromClient {
		l.owner = p.owner(l.owner, piece)
	}
	for p.cuts[l.owner] && !l.dropped {
		p.changed.Wait()
	}
	switch {
	case l.dropped || l.owner == "":
		return nil, false
	case p.silent || l.silent:
		return nil, true
	case !fromClient && len(p.replaced[0]) > 0:
		return bytes.ReplaceAll(piece, p.replaced[0], p.replaced[1]), true
	}
	return piece, true
}

func (p *Proxy) end(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(l)
}

func (p *Proxy) endLocked(l *link) {
	l.dropped = true
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
	delete(p.links, l)
	p.changed.Broadcast()
}

package storagetest

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy passes connections on to a server, and can disturb them: silence swallows what either
// side sends, like a firewall that has forgotten the connection; a cut holds it up until it is
// healed, like a cable that is pulled; a drop closes the connection.
//
// The client must be the first to send. All methods are safe for concurrent use.
type Proxy struct {
	// Addr is where clients connect to, as host:port.
	Addr string

	target  func() (network, address string)
	owner   Owner
	running sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // cuts, or whether a link is dropped
	silent   bool
	replaced [2][]byte // what, and by what
	cuts     map[string]bool
	links    map[*link]struct{}
}

// Owner names the owner of a connection from what the client sends. It is called for each
// piece that the client sends, with the owner so far, "" at first. A connection that has no owner
// after the first piece is closed.
type Owner func(owner string, sent []byte) string

// OwnedBy gives all connections to one owner.
func OwnedBy(name string) Owner { return func(string, []byte) string { return name } }

// link is a connection through the proxy. The proxy's mutex guards it. The server is nil until
// it is dialled.
type link struct {
	owner           string
	client, server  net.Conn
	silent, dropped bool
}

// StartProxy returns a proxy of the server at the address to of the network, "tcp" or
// "unix". It ends with the test.
func StartProxy(t testing.TB, network, to string) *Proxy {
	t.Helper()
	return StartProxyWithOwners(t, func() (string, string) { return network, to }, OwnedBy("client"))
}

// StartProxyWithOwners is StartProxy of a server whose address may change, with an owner for
// each connection, so that the connections of one owner can be disturbed.
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

// Silence begins or ends the silence of all connections, new ones included. What was swallowed
// does not come back.
func (p *Proxy) Silence(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// SilencePresent silences for ever the owner's connections of this moment, all connections if
// the owner is "". It returns their number.
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

// Replace has the proxy replace a text in what the server sends by another one of the same
// length.
func (p *Proxy) Replace(text, by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replaced = [2][]byte{[]byte(text), []byte(by)}
}

// Cut holds up what the owner's connections carry, new ones included, until Heal.
func (p *Proxy) Cut(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts[owner] = true
}

// Heal ends a cut, and passes on what was held up.
func (p *Proxy) Heal(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cuts, owner)
	p.changed.Broadcast()
}

// Drop closes the owner's connections, all connections if the owner is "". What was held up is
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

// pass copies one direction until an end closes, and then closes both.
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

// admit returns what is passed on of a piece, once the owner is not cut off. It is not ok if
// the link is dropped or has no owner.
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

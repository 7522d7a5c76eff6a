package chaos

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a server. It can cut off one of the processes that
// connect: nothing is passed on to it or from it any more, and nobody is told, as
// when a cable is pulled.
type proxy struct {
	listener net.Listener
	target   func() string       // the address of the server
	owner    func([]byte) string // the name of the process that connects, by what it sends first

	mu    sync.Mutex
	moved *sync.Cond // cuts or links changed
	cuts  map[string]bool
	links map[*link]struct{}
}

// link is one connection through a proxy. Its owner is "" until it has sent
// something, and the server nil until it is dialled.
type link struct {
	owner          string
	client, server net.Conn
	dropped        bool
}

func newProxy(t *testing.T, target func() string, owner func([]byte) string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: target, owner: owner, cuts: map[string]bool{}, links: map[*link]struct{}{}}
	p.moved = sync.NewCond(&p.mu)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		p.drop("")
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }
func (p *proxy) port() int    { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) serve(client net.Conn) {
	l := &link{client: client}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	greeting := make([]byte, 4<<10)
	n, err := client.Read(greeting)
	p.mu.Lock()
	l.owner = p.owner(greeting[:n])
	p.mu.Unlock()
	// A connection that is nobody's could not be cut.
	if err != nil || l.owner == "" || !p.open(l) {
		p.end(l)
		return
	}
	server, err := net.Dial("tcp", p.target())
	if err != nil {
		p.end(l)
		return
	}
	p.mu.Lock()
	l.server = server
	if l.dropped {
		_ = server.Close()
	}
	p.mu.Unlock()
	if _, err := server.Write(greeting[:n]); err != nil {
		p.end(l)
		return
	}
	var done sync.WaitGroup
	done.Go(func() { p.pass(l, client, server) })
	done.Go(func() { p.pass(l, server, client) })
	done.Wait()
}

// pass copies one direction until an end closes, and then closes both.
func (p *proxy) pass(l *link, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.open(l) {
			break
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	p.end(l)
}

// open waits while the owner of the link is cut off. It is false when the link is
// dropped.
func (p *proxy) open(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cuts[l.owner] && !l.dropped {
		p.moved.Wait()
	}
	return !l.dropped
}

func (p *proxy) end(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(l)
}

func (p *proxy) endLocked(l *link) {
	l.dropped = true
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
	delete(p.links, l)
	p.moved.Broadcast()
}

// cut cuts the process off, until heal.
func (p *proxy) cut(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts[owner] = true
}

// heal passes on what was held up.
func (p *proxy) heal(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cuts, owner)
	p.moved.Broadcast()
}

// drop closes the connections of the process, of every process if it is "". What was
// held up is lost.
func (p *proxy) drop(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if owner == "" || l.owner == owner {
			p.endLocked(l)
		}
	}
}

// byName is the owner function of a proxy that one process has for itself.
func byName(name string) func([]byte) string { return func([]byte) string { return name } }

// replica is the owner of the connections by which a replica follows its master.
const replica = "replica"

// byGreeting is the owner function of a node of a Redis Cluster: the nodes have one
// address for all. A client of Redis says its name in its first command, as the
// parameter client_name of its URL has it; a replica begins with PING.
func byGreeting(greeting []byte) string {
	if name := setName.FindSubmatch(greeting); name != nil {
		return string(name[1])
	}
	if bytes.HasPrefix(greeting, []byte("*1\r\n$4\r\nPING\r\n")) {
		return replica
	}
	return ""
}

var setName = regexp.MustCompile(`(?i)setname\r\n\$\d+\r\n(\w+)\r\n`)

// TestProxyCutsOff guards the tool itself.
func TestProxyCutsOff(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p := newProxy(t, echo.Addr().String, byGreeting)
	c, err := net.Dial("tcp", p.addr())
	require.NoError(t, err)
	defer c.Close()
	answers := make(chan string, 1)
	go func() {
		for lines := bufio.NewReader(c); ; {
			line, err := lines.ReadString('\n')
			answers <- line
			if err != nil {
				return
			}
		}
	}()
	say := func(line string) { _, err := io.WriteString(c, line); require.NoError(t, err) }
	say("SETNAME\r\n$4\r\nthis\r\n")
	for _, line := range []string{"SETNAME\r\n", "$4\r\n", "this\r\n"} {
		require.Equal(t, line, <-answers)
	}
	p.cut("this")
	say("b\n")
	p.cut("another")
	p.heal("another")
	require.Empty(t, answers)
	p.heal("this")
	require.Equal(t, "b\n", <-answers)
	p.cut("this")
	say("c\n")
	p.drop("this")
	require.Empty(t, <-answers)
}

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// startProxy returns a proxy for a TCP server whose address may change.
func startProxy(t *testing.T, target func() string, owner storagetest.Owner) *storagetest.Proxy {
	t.Helper()
	return storagetest.StartProxyWithOwners(t, func() (string, string) { return "tcp", target() }, owner)
}

// replica is the owner of the connections that replicas open to their masters.
const replica = "replica"

// byGreeting is the [storagetest.Owner] for a node of the Redis Cluster. All clients use the
// same address, so the owner is derived from the first command: a client sends the
// client_name of its Redis URL, a replica sends PING.
func byGreeting(owner string, sent []byte) string {
	if owner != "" {
		return owner
	}
	if name := setName.FindSubmatch(sent); name != nil {
		return string(name[1])
	}
	if bytes.HasPrefix(sent, []byte("*1\r\n$4\r\nPING\r\n")) {
		return replica
	}
	return ""
}

var setName = regexp.MustCompile(`(?i)setname\r\n\$\d+\r\n(\w+)\r\n`)

// TestProxyCutsOff tests the proxy itself.
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
	p := startProxy(t, echo.Addr().String, byGreeting)
	c, err := net.Dial("tcp", p.Addr)
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
	p.Cut("this")
	say("b\n")
	p.Cut("another")
	p.Heal("another")
	require.Empty(t, answers)
	p.Heal("this")
	require.Equal(t, "b\n", <-answers)
	p.Cut("this")
	say("c\n")
	p.Drop("this")
	require.Empty(t, <-answers)
}

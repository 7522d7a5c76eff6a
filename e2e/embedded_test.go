package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A post travels from a mutation to a live timeline. All data survive a restart of the
// process.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	settings := []string{"TIDELINE_DATA_DIR=" + t.TempDir()}
	p := start(t, settings, "--addr=127.0.0.1:0")
	require.Contains(t, p.out.String(), p.url+"/graphiql")
	ann, ben := signUp(t, p, "ann"), signUp(t, p, "ben")
	ben.follow(t, p, ann)
	ann.post(t, p, "one")
	require.Equal(t, []string{"one"}, ann.timeline(t, p))
	ben.arrived(t, p, "one")

	client := ben.subscribe(t, p)
	p.subscribed(1)
	ann.post(t, p, "two")
	client.received("two")
	ben.arrived(t, p, "two", "one")

	require.Zero(t, p.stop())
	require.Contains(t, []int{1001, 1012}, client.closed())
	p = start(t, settings, "--addr="+strings.TrimPrefix(p.url, "http://"))
	require.Equal(t, []string{"two", "one"}, ben.timeline(t, p))
	require.Equal(t, []string{"two", "one"}, ann.timeline(t, p))
	// The client reconnects by itself.
	p.subscribed(1)
	ann.post(t, p, "three")
	client.received("two", "three")
	ben.arrived(t, p, "three", "two", "one")
	require.Zero(t, p.stop())
}

// After the first signal the process waits for running requests. After the second signal it
// ends at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0", "--shutdown-grace=10m")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "POST /graphql HTTP/1.1\r\nHost: tideline\r\nContent-Type: application/json\r\n"+
		"Expect: 100-continue\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue"))) // the handler waits for the body
	require.NoError(t, err)

	p.signal(syscall.SIGTERM)
	p.await("it stops", func() bool { return strings.Contains(p.out.String(), "msg=stopping") })
	require.Eventually(t, func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // a signal directly after another counts as an echo
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}, patience, poll)
	require.Equal(t, 1, p.ended())
	require.Contains(t, p.out.String(), "second signal")
}

// Two processes cannot share a data directory.
func TestDataDirectoryHasOneUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, nil, "--data-dir="+dir, "--addr=127.0.0.1:0")
	second := launch(t, nil, "--data-dir="+dir, "--addr=127.0.0.1:0")
	require.Equal(t, 1, second.ended())
	require.Contains(t, second.out.String(), dir)
}

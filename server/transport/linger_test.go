package transport

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/server/wire"
)

const asJSONHeader = "Content-Type: application/json\r\n"

// rawPost opens a connection and sends the header of a POST.
func (f *fixture) rawPost(t *testing.T, header string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(25*time.Second))) // ends a failing test
	_, err = fmt.Fprintf(conn, "POST /graphql HTTP/1.1\r\nHost: example.com\r\n%s\r\n\r\n", header)
	require.NoError(t, err)
	return conn
}

// expectTooLarge reads the answer for a body that is too large.
func expectTooLarge(t *testing.T, conn net.Conn) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	require.Contains(t, string(body), `"code":"BAD_USER_INPUT"`)
	require.Contains(t, string(body), "1048576 bytes")
}

// A client that reads the answer only after it has sent its whole request gets the answer, and its connection
// is not reset while it sends. The rest of the body is larger than all buffers in between.
func TestTooLargeBodyIsAnsweredAfterItWasSent(t *testing.T) {
	for name, length := range map[string]int{"a little too large": maxBody + 300<<10, "much too large": 32 << 20} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			conn := f.rawPost(t, fmt.Sprintf(asJSONHeader+"Content-Length: %d", length))
			part := []byte(strings.Repeat(" ", 1<<20))
			for sent := 0; sent < length; sent += len(part) {
				_, err := conn.Write(part[:min(len(part), length-sent)])
				require.NoError(t, err, "after %d bytes", sent)
			}
			expectTooLarge(t, conn)
		})
		t.Run(name+" in chunks", func(t *testing.T) {
			f := newFixture(t, nil)
			conn := f.rawPost(t, asJSONHeader+"Transfer-Encoding: chunked")
			for sent := 0; sent < length; sent += 1 << 10 {
				_, err := fmt.Fprintf(conn, "400\r\n%s\r\n", strings.Repeat(" ", 1<<10))
				require.NoError(t, err, "after %d bytes", sent)
			}
			_, err := io.WriteString(conn, "0\r\n\r\n")
			require.NoError(t, err)
			expectTooLarge(t, conn)
		})
	}
}

// The answer does not wait for the rest of the body.
func TestTooLargeBodyIsAnsweredWhileItIsSent(t *testing.T) {
	f := newFixture(t, nil)
	f.server.Config.Handler = Linger(wire.Compress(f.handler)) // net/http does not recognise the wrapped writer
	expectTooLarge(t, f.rawPost(t, fmt.Sprintf(asJSONHeader+"Content-Length: %d", 32<<20)))

	conn := f.rawPost(t, asJSONHeader+"Transfer-Encoding: chunked")
	_, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", maxBody+1, strings.Repeat(" ", maxBody+1))
	require.NoError(t, err)
	expectTooLarge(t, conn)
}

// A body of a wrong type also stays unread, and is answered.
func TestUnreadBodyOfAnotherTypeIsAnswered(t *testing.T) {
	f := newFixture(t, nil)
	const length = 32 << 20
	conn := f.rawPost(t, fmt.Sprintf("Content-Type: text/plain\r\nContent-Length: %d", length))
	_, err := io.Copy(conn, io.LimitReader(spaces{}, length))
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnsupportedMediaType, response.StatusCode)
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// connect returns the queue of a socket and the client's connection.
func connect(t *testing.T, maxFrames int) (q *writeQueue, client *websocket.Conn, running *sync.WaitGroup) {
	t.Helper()
	running = new(sync.WaitGroup)
	accepted := make(chan *websocket.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err == nil {
			accepted <- conn
		}
	}))
	t.Cleanup(server.Close)
	client, response, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	require.NoError(t, err)
	response.Body.Close()
	conn := <-accepted
	t.Cleanup(func() {
		client.Close()
		conn.Close()
		running.Wait()
	})
	return &writeQueue{writeQueueConfig: writeQueueConfig{
		Conn: conn, MaxFrames: maxFrames, MaxBytes: 64 << 20, WriteTimeout: time.Minute,
		Overflowed: func() {}, Stopped: func() {}, Running: running,
	}}, client, running
}

func (q *writeQueue) now(text string) {
	f := beginTextFrame()
	defer f.End()
	f.Text = append(f.Text, text...)
	q.SendNow(f)
}

// Frames with each length of header arrive intact between queued frames. A grown buffer
// contains nothing of the previous frame.
func TestSendNow(t *testing.T) {
	q, client, running := connect(t, 100)
	for _, n := range []int{0, 1, 125, 126, 1000, 1014, 1015, 3, 5000, 5, 20_000, 7, 1<<16 - 1, 9, 1 << 16, 100_000, 5} {
		text := strings.Repeat("é", n/2) + strings.Repeat("x", n%2)
		q.now(text)
		q.now("after " + text)
		q.Send(websocket.TextMessage, []byte("queued"))
		running.Wait() // the next frame is written at once
		for _, want := range []string{text, "after " + text, "queued"} {
			_, got, err := client.ReadMessage()
			require.NoError(t, err)
			require.True(t, want == string(got), "%.40q in place of %.40q", got, want)
		}
	}
}

// A client that does not read blocks nobody. Bytes that the kernel does not take are queued, also the rest of
// a partly written frame, and all frames arrive complete and in order.
func TestSendNowDoesNotWait(t *testing.T) {
	q, client, running := connect(t, 1000)
	text := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 100_000+i) }
	const n = 300 // far more than the kernel buffers
	for i := range n {
		q.now(text(i))
	}
	q.mu.Lock()
	require.NotEmpty(t, q.frames, "the kernel took it all")
	q.mu.Unlock()
	for i := range n {
		_, got, err := client.ReadMessage()
		require.NoError(t, err)
		require.True(t, text(i) == string(got), "frame %d", i)
	}
	running.Wait()
	// The deadline of queued frames does not apply to later ones.
	require.NoError(t, q.Conn.NetConn().SetWriteDeadline(time.Now().Add(-time.Second)))
	q.now("later")
	_, got, err := client.ReadMessage()
	require.NoError(t, err)
	require.Equal(t, "later", string(got))
	require.False(t, q.IsClosing())
}

// A client that never reads loses its connection when the queue is full.
func TestSendNowToADeafClient(t *testing.T) {
	q, _, _ := connect(t, 3)
	for range 300 {
		q.now(strings.Repeat("x", 100_000))
	}
	require.True(t, q.IsClosing())
}

package transport

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// benchSockets opens n pairs of connections: a server's queue and its client.
func benchSockets(b *testing.B, n int, deflate bool) (queues []*writeQueue, clients []*websocket.Conn) {
	accepted := make(chan *websocket.Conn, 1)
	upgrader := websocket.Upgrader{EnableCompression: deflate, ReadBufferSize: 1024, WriteBufferSize: 1024, WriteBufferPool: new(sync.Pool)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
			accepted <- conn
		}
	}))
	b.Cleanup(server.Close)
	dialer := websocket.Dialer{EnableCompression: true, ReadBufferSize: 1024, WriteBufferSize: 512}
	for range n {
		client, response, err := dialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
		require.NoError(b, err)
		response.Body.Close()
		q := &writeQueue{writeQueueConfig: writeQueueConfig{
			Conn: <-accepted, MaxFrames: 256, MaxBytes: 512 << 10, WriteTimeout: time.Minute, Deflate: deflate,
			Overflowed: func() {}, Stopped: func() {}, Running: new(sync.WaitGroup),
		}}
		b.Cleanup(func() {
			client.Close()
			q.Conn.Close()
			q.Running.Wait()
		})
		queues, clients = append(queues, q), append(clients, client)
	}
	return queues, clients
}

// words are the words of event's texts.
var words = strings.Fields(`the of and a to in is you that it he was for on are as with his they I at be this have from or
one had by word but not what all were we when your can said there use an each which she do how their if will up other about
out many then them these so some her would make like him into time has look two more write go see number no way could people
my than first water been call who oil its now find long down day did get come made may part over tide morning photograph`)

// event returns a message about a new post with a text of length characters.
func event(length int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	text := ""
	for len(text) < length {
		text += words[r.IntN(len(words))] + " "
	}
	position := ""
	for range 54 {
		position += string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[r.IntN(64)])
	}
	return fmt.Appendf(nil, `{"id":"1","type":"next","payload":{"data":{"timelineEvents":{"__typename":"TimelinePostAdded","position":%q,"edge":{"node":{"id":"UG9zdDo0MDAwMDAxNjU4MjMxNDI4","text":%q,"createdAt":"2026-01-02T03:04:05.678Z","author":{"handle":"author7","name":"Author 7"}}}}}}}`,
		position, text[:length])
}

// BenchmarkDeflate measures writing one event to one socket: bytes on the wire, and processor time of the
// writer into a connection that takes everything. The texts have 60 to 5,000 characters.
func BenchmarkDeflate(b *testing.B) {
	for _, length := range []int{60, 140, 500, 1000, 2000, 5000} {
		for _, deflate := range []bool{false, true} {
			b.Run(fmt.Sprintf("text=%d/deflate=%t", length, deflate), func(b *testing.B) {
				queues, clients := benchSockets(b, 1, deflate)
				var read int64
				done := make(chan struct{})
				go func() {
					defer close(done)
					read, _ = io.Copy(io.Discard, clients[0].NetConn())
				}()
				message := event(length)
				begun := storagetest.ProcessorTime(b)
				for b.Loop() {
					queues[0].Add(websocket.TextMessage, message, nil)
					queues[0].Flush()
				}
				b.ReportMetric(float64((storagetest.ProcessorTime(b)-begun).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
				require.NoError(b, queues[0].Conn.Close())
				<-done
				b.ReportMetric(float64(read)/float64(b.N), "bytes")
				b.ReportMetric(float64(len(message)), "plain-bytes")
			})
		}
	}
}

// BenchmarkInflate measures one message of a client, a subscription, with the processor time of both sides.
func BenchmarkInflate(b *testing.B) {
	for _, deflate := range []bool{false, true} {
		b.Run(fmt.Sprintf("deflate=%t", deflate), func(b *testing.B) {
			queues, clients := benchSockets(b, 1, deflate)
			message := []byte(`{"id":"1","type":"subscribe","payload":{"query":"subscription($after: Cursor) { timelineEvents(after: $after) { __typename ... on TimelinePostAdded { position edge { cursor node { id text createdAt author { handle name } } } } } }","variables":{"after":null}}}`)
			begun := storagetest.ProcessorTime(b)
			for b.Loop() {
				require.NoError(b, clients[0].WriteMessage(websocket.TextMessage, message))
				_, got, err := queues[0].Conn.ReadMessage()
				require.NoError(b, err)
				require.Len(b, got, len(message))
			}
			b.ReportMetric(float64((storagetest.ProcessorTime(b)-begun).Nanoseconds())/float64(b.N)/1000, "cpu-µs/op")
		})
	}
}

// BenchmarkIdle measures the heap and stacks of an idle connection and its client, in one process, after an
// event of 2.5 KB and a message of the client.
func BenchmarkIdle(b *testing.B) {
	const n = 2000
	for _, deflate := range []bool{false, true} {
		b.Run(fmt.Sprintf("deflate=%t", deflate), func(b *testing.B) {
			for range b.N {
				before := inUse()
				queues, clients := benchSockets(b, n, deflate)
				for i, q := range queues {
					q.Send(websocket.TextMessage, event(2000))
					_, _, err := clients[i].ReadMessage()
					require.NoError(b, err)
					require.NoError(b, clients[i].WriteMessage(websocket.TextMessage, event(60)))
					_, _, err = q.Conn.ReadMessage()
					require.NoError(b, err)
				}
				b.ReportMetric(float64(inUse()-before)/n/1024, "KB/pair")
				runtime.KeepAlive(queues)
				runtime.KeepAlive(clients)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// inUse returns the memory in use after the pools are emptied, which takes two collections.
func inUse() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

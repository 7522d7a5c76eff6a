package transport

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/semaphore"

	"tideline/server/limit"
	"tideline/server/transport/incoming"
	"tideline/server/transport/requestid"
)

const (
	// socketBuffer is the size of the buffers that frames are read through and
	// written through, in bytes. The sockets share those for writing: an idle socket
	// costs next to nothing.
	socketBuffer = 1024
	// sendBuffer is how many bytes the kernel buffers for a client that does not
	// read. Without a bound it grows to megabytes.
	sendBuffer = 64 << 10
	// lookUpsAtOnce is how many sockets may look up their session, or that of an
	// operation, at a time. When thousands come back at once the others wait, and
	// time out no sooner for that.
	lookUpsAtOnce = 32
	// maxInit bounds messages, in bytes, until the client has said who it is.
	maxInit = 16 << 10
)

// sockets are the WebSocket connections of this process.
type sockets struct {
	api      *api
	sessions *sessions
	upgrader websocket.Upgrader

	stopping chan struct{}       // closed when shutdown begins
	lookUps  *semaphore.Weighted // the sockets that look up a session

	mu      sync.Mutex
	taken   int // open sockets, handshakes under way, and streams of events
	open    map[*socket]struct{}
	closing bool
	running sync.WaitGroup // every goroutine of every socket
}

func newSockets(a *api) *sockets {
	return &sockets{
		api:      a,
		sessions: newSessions(a.config.Ended, a.config.Logger),
		upgrader: websocket.Upgrader{
			HandshakeTimeout:  a.config.WriteTimeout,
			ReadBufferSize:    socketBuffer,
			WriteBufferSize:   socketBuffer,
			WriteBufferPool:   new(sync.Pool),
			EnableCompression: a.config.Deflate,
			Subprotocols:      []string{transportWS.protocol, legacyWS.protocol},
			CheckOrigin:       func(r *http.Request) bool { return incoming.OriginAllowed(r, a.config.AllowedOrigins) },
		},
		stopping: make(chan struct{}),
		lookUps:  semaphore.NewWeighted(lookUpsAtOnce),
		open:     make(map[*socket]struct{}),
	}
}

// accept turns a handshake into a socket. It returns at once: the socket lives
// without the HTTP server's goroutine and buffers.
func (s *sockets) accept(w http.ResponseWriter, r *http.Request) {
	if !s.reserve() {
		unavailable(w, "This server takes no more connections.")
		return
	}
	conn, err := s.upgrader.Upgrade(w, r, http.Header{requestid.Header: w.Header()[requestid.Header]})
	if err != nil {
		s.release()
		s.api.config.Logger.DebugContext(r.Context(), "websocket handshake refused", "err", err)
		return
	}
	if tuned, ok := conn.NetConn().(interface{ SetWriteBuffer(int) error }); ok {
		_ = tuned.SetWriteBuffer(sendBuffer) // if it fails, the kernel's own size does, too
	}
	// The request's context ends when this function returns.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	limit.FreeSlot(ctx)
	socket := newSocket(s, conn, limit.AddressOf(r.RemoteAddr), incoming.OffersDeflate(r.Header), cancel)
	socket.token, socket.tokenOK = incoming.Credential(r.Header)
	socket.token = strings.Clone(socket.token) // the header need not stay in memory
	s.mu.Lock()
	s.open[socket] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		socket.queue.Close(websocket.CloseServiceRestart, "Restarting")
	}
	go socket.read(ctx)
}

// reserve counts a socket or stream that is about to begin; ok is false when there
// are too many already or the process is stopping. The caller calls release once.
func (s *sockets) reserve() (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.taken >= s.api.config.MaxSockets {
		return false
	}
	s.taken++
	s.running.Add(1)
	return true
}

// forget counts a socket that was closed no more.
func (s *sockets) forget(socket *socket) {
	s.mu.Lock()
	delete(s.open, socket)
	s.mu.Unlock()
	s.release()
}

// release gives back what reserve counted.
func (s *sockets) release() {
	s.mu.Lock()
	s.taken--
	s.mu.Unlock()
	s.running.Done()
}

// count is how many sockets are open.
func (s *sockets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// shutdown see Handler.Shutdown.
func (s *sockets) shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.stopping)
	}
	open := make([]*socket, 0, len(s.open))
	for socket := range s.open {
		open = append(open, socket)
	}
	s.mu.Unlock()
	for _, socket := range open {
		socket.operations.drain()
	}
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
	}
	for _, socket := range open {
		socket.conn.Close()
		socket.cancel()
	}
	<-gone
	return ctx.Err()
}

package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// socketConfig bounds what one client can hold. Every field must be set.
type socketConfig struct {
	InitTimeout  time.Duration // from the handshake to connection_init
	PingInterval time.Duration // a peer silent for two of these is gone
	ReadTimeout  time.Duration // for one message to come, from its first byte
	WriteTimeout time.Duration // for one frame to leave
	Operations   int           // under way at once, per socket
	QueueFrames  int           // waiting to be written, per socket
	QueueBytes   int           // the same; one frame alone may be larger
	Sockets      int           // open at once, in this process
}

var defaultSocketConfig = socketConfig{
	InitTimeout:  5 * time.Second,
	PingInterval: 20 * time.Second,
	ReadTimeout:  readTimeout,
	WriteTimeout: 10 * time.Second,
	Operations:   100,
	QueueFrames:  256,
	QueueBytes:   512 << 10,
	Sockets:      20_000,
}

const (
	// Frames are built in buffers that sockets share, and small ones are read
	// through a small one: an idle socket should cost next to nothing.
	socketBuffer = 1024
	// What the kernel buffers for a client that does not read; left alone it
	// grows to megabytes.
	sendBuffer = 64 << 10
	// beginners is how many sockets may look up their session, or that of an
	// operation, at a time. When thousands come back at once the others wait, and
	// time out no sooner for that.
	beginners = 32
	// maxInit bounds messages, in bytes, until the client has said who it is.
	maxInit = 16 << 10
)

// sockets are the WebSocket connections of this process.
type sockets struct {
	api      *api
	config   socketConfig
	sessions *sessions // whose end ends their sockets; nil: nobody watches
	upgrader websocket.Upgrader

	stopping chan struct{} // closed when shutdown begins
	lookUps  line          // of sockets that look up their session

	mu      sync.Mutex
	taken   int // open sockets, handshakes under way, and streams of events
	open    map[*socket]struct{}
	closing bool
	running sync.WaitGroup // every goroutine of every socket
}

func newSockets(a *api, config socketConfig, origins []string) *sockets {
	return &sockets{
		api:    a,
		config: config,
		upgrader: websocket.Upgrader{
			HandshakeTimeout: config.WriteTimeout,
			ReadBufferSize:   socketBuffer,
			WriteBufferSize:  socketBuffer,
			WriteBufferPool:  new(sync.Pool),
			Subprotocols:     []string{transportWS.protocol, legacyWS.protocol},
			CheckOrigin:      func(r *http.Request) bool { return originAllowed(r, origins) },
		},
		stopping: make(chan struct{}),
		lookUps:  newLine(beginners),
		open:     make(map[*socket]struct{}),
	}
}

// originAllowed says whether the page that made the request, if any, is ours
// or on the list. Programs other than browsers send no Origin.
func originAllowed(r *http.Request, origins []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, "*") || slices.Contains(origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// accept turns a handshake into a socket. It returns at once: the socket goes
// on without the HTTP server's goroutine and buffers.
func (s *sockets) accept(w http.ResponseWriter, r *http.Request) {
	if !s.reserve() {
		unavailable(w, "This server takes no more connections.")
		return
	}
	conn, err := s.upgrader.Upgrade(w, r, http.Header{requestIDHeader: w.Header()[requestIDHeader]})
	if err != nil {
		s.release()
		s.api.log.DebugContext(r.Context(), "websocket handshake refused", "err", err)
		return
	}
	if tuned, ok := conn.NetConn().(interface{ SetWriteBuffer(int) error }); ok {
		_ = tuned.SetWriteBuffer(sendBuffer) // a hint; the kernel's own size works too
	}
	// The request's context ends when this function returns.
	address := addressOf(r.RemoteAddr)
	ctx, cancel := context.WithCancel(withSubscriber(context.WithoutCancel(r.Context()), address))
	if c := connOf(ctx); c != nil {
		c.leave()
	}
	socket := newSocket(s, conn, address, cancel)
	s.mu.Lock()
	s.open[socket] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		socket.close(websocket.CloseServiceRestart, "Restarting")
	}
	go socket.read(ctx)
}

// reserve counts the reader of a socket to come, unless there are too many
// already or the process is stopping.
func (s *sockets) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.taken >= s.config.Sockets {
		return false
	}
	s.taken++
	s.running.Add(1)
	return true
}

func (s *sockets) forget(socket *socket) {
	s.mu.Lock()
	delete(s.open, socket)
	s.mu.Unlock()
	s.release()
}

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

// shutdown closes every socket with 1012, on which clients reconnect, once its
// queries and mutations are answered, and breaks streams of events off. It returns when all are gone, or cuts
// them off when ctx is done.
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
		socket.drain()
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

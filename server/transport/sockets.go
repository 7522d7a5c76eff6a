package transport

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/semaphore"

	"tideline/feed/refusal"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

const (
	// socketBuffer is the size of the read and write buffers of a connection, in bytes. Sockets share the
	// write buffers, so an idle socket costs next to nothing.
	socketBuffer = 1024
	// sendBuffer bounds the bytes that the kernel buffers for a client that does not read. Without a
	// bound the buffer grows to megabytes.
	sendBuffer = 64 << 10
	// lookUpsAtOnce is how many sockets may look up a session at a time. If thousands reconnect at once, the
	// others wait. Waiting does not shorten their time-outs.
	lookUpsAtOnce = 32
	// maxInit bounds messages before the client is authenticated, in bytes.
	maxInit = 16 << 10
)

// sockets are the WebSocket connections and event streams of this process.
type sockets struct {
	api      *api
	upgrader websocket.Upgrader
	origins  incoming.Origins
	refused  refusal.Log

	// sleep waits, unless the context or done ends first. Tests replace it.
	sleep   func(ctx context.Context, d time.Duration, done <-chan struct{})
	lookUps *semaphore.Weighted // sockets that look up a session

	mu      sync.Mutex
	taken   int // open sockets, handshakes in progress and event streams
	open    map[*socket]struct{}
	streams map[*stream]struct{}
	closing bool
	running sync.WaitGroup // every goroutine of every socket
}

func newSockets(a *api) *sockets {
	return &sockets{
		api: a,
		upgrader: websocket.Upgrader{
			HandshakeTimeout:  a.config.WriteTimeout,
			ReadBufferSize:    socketBuffer,
			WriteBufferSize:   socketBuffer,
			WriteBufferPool:   new(sync.Pool),
			EnableCompression: a.config.Deflate,
			CheckOrigin:       func(*http.Request) bool { return true }, // accept has checked the origin
			Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
				w.Header().Set("Sec-Websocket-Version", "13")
				http.Error(w, reason.Error(), status)
			},
		},
		origins: incoming.NewOrigins(a.config.AllowedOrigins),
		sleep:   sleep,
		lookUps: semaphore.NewWeighted(lookUpsAtOnce),
		open:    make(map[*socket]struct{}),
		streams: make(map[*stream]struct{}),
	}
}

// accept upgrades a request to a socket. It returns at once: the socket does not keep the HTTP
// server's goroutine and buffers.
func (s *sockets) accept(w http.ResponseWriter, r *http.Request) {
	if !s.origins.Allow(r) {
		s.refuseOrigin(w, r)
		return
	}
	if !s.reserve() {
		unavailable(w, "This server takes no more connections.")
		return
	}
	// A client that offers both subprotocols gets the newer one.
	header := http.Header{RequestIDHeader: w.Header()[RequestIDHeader]}
	for _, known := range []string{olderSubprotocol, subprotocol} {
		if slices.Contains(websocket.Subprotocols(r), known) {
			header.Set("Sec-Websocket-Protocol", known)
		}
	}
	conn, err := s.upgrader.Upgrade(w, r, header)
	if err != nil {
		s.release()
		s.api.config.Logger.DebugContext(r.Context(), "websocket handshake refused", "error", err)
		return
	}
	if tuned, ok := conn.NetConn().(interface{ SetWriteBuffer(int) error }); ok {
		_ = tuned.SetWriteBuffer(sendBuffer) // if it fails, the kernel's default stays
	}
	// The request's context ends when this function returns.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	limit.FreeSlot(ctx)
	socket := newSocket(s, conn, limit.AddressOf(r.RemoteAddr), incoming.OffersDeflate(r.Header), cancel)
	socket.token, socket.tokenOK = incoming.Credential(r.Header)
	socket.token = strings.Clone(socket.token) // a copy, so that the header is not kept in memory
	s.mu.Lock()
	s.open[socket] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		socket.operations.leave(0)
	}
	go socket.read(ctx)
}

// refuseOrigin refuses a handshake from the page of another site. It logs that, since a proxy that
// changes the host causes the same.
func (s *sockets) refuseOrigin(w http.ResponseWriter, r *http.Request) {
	origin := r.Header.Get("Origin")
	if omitted, due := s.refused.Due("origin", time.Now()); due {
		s.api.config.Logger.WarnContext(r.Context(), "websocket refused: the page is of another site. If it is yours, have the proxy pass the Host header on, or set --allowed-origins",
			"origin", origin, "host", r.Host, "omitted", omitted)
	}
	http.Error(w, fmt.Sprintf("The page's origin %q is not the host that it asks, %q, and is not among the allowed origins.", origin, r.Host), http.StatusForbidden)
}

// reserve counts a socket or stream that is about to begin. ok is false if there are too many or the process
// is stopping. The caller calls release once.
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

// forget removes a closed socket.
func (s *sockets) forget(socket *socket) {
	s.mu.Lock()
	delete(s.open, socket)
	s.mu.Unlock()
	s.release()
}

// release reverts reserve.
func (s *sockets) release() {
	s.mu.Lock()
	s.taken--
	s.mu.Unlock()
	s.running.Done()
}

// count returns the number of open sockets.
func (s *sockets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"tideline/feed/session"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

// socket is one WebSocket connection. One goroutine reads it while it is open. A second one exists while
// there are frames to write, and one more for each operation that executes.
type socket struct {
	set        *sockets
	conn       *websocket.Conn
	address    string
	cancel     context.CancelFunc // ends every operation
	queue      writeQueue
	operations operations

	// Used only by the reader until connection_ack, unchanged afterwards.
	greeted bool   // connection_init was received
	acked   bool   // connection_ack was sent
	token   string // from the handshake, unless connection_init has one
	tokenOK bool   // the token is well-formed
	unwatch func() // stops watching the session

	// Used only by the reader.
	due      time.Time // when the message being read must be complete
	giveBack func()    // releases the message's share of the budget

	// Guarded by the queue's lock. They are set while the queue is open, and stopped when it closes.
	deadline *time.Timer // for connection_init, then for the expiry of the session
	pings    *time.Timer // nil until connection_ack
}

// queueBytes bounds the frames of one socket that wait to be written. A single frame may be larger.
const queueBytes = 512 << 10

func newSocket(set *sockets, conn *websocket.Conn, address string, offersDeflate bool, cancel context.CancelFunc) *socket {
	config := &set.api.config
	s := &socket{
		set:     set,
		conn:    conn,
		address: address,
		cancel:  cancel,
		unwatch: func() {},
	}
	s.queue = writeQueue{writeQueueConfig: writeQueueConfig{
		Conn: conn, MaxFrames: config.QueueFrames, MaxBytes: queueBytes, WriteTimeout: config.WriteTimeout,
		Deflate: config.Deflate && offersDeflate, Overflowed: config.ObserveSlowSocket, Stopped: s.stopAll, Running: &set.running,
	}}
	s.operations = operations{socket: s, byID: make(map[string]*operation)}
	conn.SetReadLimit(maxInit)
	conn.SetPongHandler(func(string) error { s.heard(); return nil })
	conn.SetPingHandler(func(data string) error {
		s.heard()
		s.queue.Send(websocket.PongMessage, []byte(data))
		return nil
	})
	conn.SetCloseHandler(func(code int, _ string) error { s.queue.Close(code, ""); return nil })
	s.heard()
	s.queue.WhileOpen(func() {
		s.deadline = time.AfterFunc(config.InitTimeout, func() {
			s.queue.Close(closeInitTimeout, "Connection initialisation timeout")
		})
	})
	if conn.Subprotocol() != subprotocol {
		s.queue.Close(closeNotAcceptable, "Subprotocol not acceptable: use "+subprotocol)
	}
	return s
}

// stopAll stops everything except writing the queued frames.
func (s *socket) stopAll() {
	s.cancel()
	s.deadline.Stop()
	if s.pings != nil {
		s.pings.Stop()
	}
}

// heard records a sign of life from the peer. It does not extend the time within
// which a message must be complete.
func (s *socket) heard() {
	deadline := time.Now().Add(2 * s.set.api.config.PingInterval)
	if !s.due.IsZero() && s.due.Before(deadline) {
		deadline = s.due
	}
	s.queue.ExpectBy(deadline)
}

// read reads messages from the handshake to the end of the connection.
func (s *socket) read(ctx context.Context) {
	defer s.set.forget(s)
	defer func() { s.unwatch() }()
	for {
		kind, data, err := s.receive()
		if err != nil && !errors.Is(err, limit.ErrBusy) && !errors.Is(err, incoming.ErrInflated) {
			s.end(err)
			return
		}
		s.heard()
		switch {
		case errors.Is(err, incoming.ErrInflated):
			s.queue.Close(websocket.CloseMessageTooBig, "")
		case err != nil:
			s.queue.Close(websocket.CloseTryAgainLater, "Too many large messages at once")
		case s.queue.IsClosing():
			// The client sent it before it saw our close frame.
		case kind != websocket.TextMessage:
			s.queue.Close(closeBadRequest, "Invalid message received: it is not text")
		default:
			s.handle(ctx, data)
		}
		s.giveBack()
	}
}

// receive reads the next message, within the budget and the time limit for a message.
func (s *socket) receive() (kind int, data []byte, err error) {
	kind, reader, err := s.conn.NextReader()
	if err != nil {
		return kind, nil, err
	}
	s.due = time.Now().Add(s.set.api.config.MessageTimeout)
	s.heard()
	most := maxInit // the connection's read limit does not apply to decompressed bytes
	if s.acked {
		most = s.set.api.config.MaxBody
	}
	data, s.giveBack, err = incoming.ReadMessage(reader, most, s.set.api.bodies, freeMessage)
	s.due = time.Time{}
	return kind, data, err
}

// end cleans up after the last read, which failed with err.
func (s *socket) end(err error) {
	if errors.Is(err, websocket.ErrReadLimit) { // gorilla has sent 1009
		s.linger()
	}
	var closed *websocket.CloseError
	s.queue.EndReading(errors.As(err, &closed))
}

// linger reads what a client still sends after our last frame. Closing at once would reset the connection,
// and the client might never read that frame.
func (s *socket) linger() {
	conn := s.conn.NetConn()
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(closeWait))
	_, _ = io.CopyN(io.Discard, conn, 4*int64(s.set.api.config.MaxBody))
}

// handle processes one message.
func (s *socket) handle(ctx context.Context, data []byte) {
	m, err := parseMessage(data)
	if err != nil {
		s.queue.Close(closeBadRequest, "Invalid message received: "+err.Error())
		return
	}
	switch m.Type {
	case "connection_init":
		s.init(ctx, m)
	case "ping":
		s.queue.Send(websocket.TextMessage, frame("pong", "", m.Payload))
	case "pong":
	case "subscribe":
		s.start(ctx, m)
	case "complete":
		s.operations.stop(m.ID)
	default:
		s.queue.Close(closeBadRequest, fmt.Sprintf("Invalid message received: no client sends %q", m.Type))
	}
}

// init authenticates the client, once for the whole connection.
func (s *socket) init(ctx context.Context, m message) {
	if s.greeted {
		s.queue.Close(closeTooManyInits, "Too many initialisation requests")
		return
	}
	s.greeted = true
	s.deadline.Stop() // from now on the client waits for us
	token, ok, err := incoming.InitCredential(m.Payload)
	if err != nil {
		s.queue.Close(closeBadRequest, "Invalid message received: the payload is no object")
		return
	}
	if ok && token == "" {
		token, ok = s.token, s.tokenOK
	}
	var viewer session.Viewer
	var expires time.Time
	if err = errUnauthenticated; ok {
		// Runs in another goroutine, since the reader would keep the stack that the look-up needs.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if !limit.InTurn(ctx, s.set.lookUps, 1, func() { viewer, expires, err = s.set.api.identify(ctx, token, s.address) }) {
				err = ctx.Err()
			}
		}()
		<-done
	}
	if isUnauthenticated(err) {
		s.forbid()
		return
	}
	if err != nil {
		_ = s.set.api.unidentified(ctx, "authenticate a socket", err)
		s.closeForNow()
		return
	}
	s.token, s.acked = token, true
	s.unwatch = s.set.api.config.Watch(viewer, s.forbid)
	s.conn.SetReadLimit(int64(s.set.api.config.MaxBody))
	s.queue.Send(websocket.TextMessage, frame("connection_ack", "", nil))
	s.queue.WhileOpen(func() {
		if !expires.IsZero() {
			s.deadline = time.AfterFunc(time.Until(expires), s.forbid)
		}
		s.pings = time.AfterFunc(s.set.api.config.PingInterval, s.beat)
	})
}

// start begins an operation.
func (s *socket) start(ctx context.Context, m message) {
	if !s.acked {
		s.queue.Close(closeUnauthorized, "Unauthorized")
		return
	}
	if m.ID == "" {
		s.queue.Close(closeBadRequest, "Invalid message received: an operation needs an id")
		return
	}
	request, err := incoming.Parse(m.Payload)
	if err != nil {
		s.queue.Close(closeBadRequest, "Invalid message received: "+err.Error())
		return
	}
	if s.operations.start(ctx, m.ID, request, s.giveBack) {
		s.giveBack = func() {} // the operation releases it
	}
}

// forbid closes a socket whose session has ended. It drops the frames in the queue.
func (s *socket) forbid() {
	s.queue.CloseNow(closeForbidden, "Forbidden")
}

// closeForNow closes the socket after an error that may be temporary. Clients treat the messages "error" and
// "complete" as final. Only a closed socket makes them return.
func (s *socket) closeForNow() { s.queue.Close(websocket.CloseTryAgainLater, "Try again later") }

// beat asks the peer for a sign of life: with a ping, which every WebSocket library answers, and with a
// message that a page's script can see.
func (s *socket) beat() {
	s.queue.Send(websocket.PingMessage, nil)
	s.queue.Send(websocket.TextMessage, beatMessage)
	s.queue.WhileOpen(func() { s.pings.Reset(s.set.api.config.PingInterval) })
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gorilla/websocket"

	"tideline/feed/account"
	"tideline/server/limit"
	"tideline/server/transport/incoming"
)

// socket is one WebSocket connection. One goroutine reads it for as long as it is
// open. Its queue has a second one while there are frames to write, and each
// operation another while it executes.
type socket struct {
	set        *sockets
	conn       *websocket.Conn
	address    string
	cancel     context.CancelFunc // ends every operation
	queue      writeQueue
	operations operations

	// The reader's alone until connection_ack, unchanged afterwards.
	greeted bool   // connection_init has come
	acked   bool   // and has been answered
	token   string // of the handshake, unless connection_init has one
	tokenOK bool   // it can be a token
	unwatch func() // ends the watch of the session

	// The reader's alone.
	due      time.Time // when the message that is being read must have come
	giveBack func()    // gives back the message's share of the budget

	// Guarded by the queue: they are set while it is open, and stopped when it is no
	// more.
	deadline *time.Timer // for connection_init, then for the end of the session
	pulse    *time.Timer // nil until connection_ack
}

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
		Conn: conn, MaxFrames: config.QueueFrames, MaxBytes: config.QueueBytes, WriteTimeout: config.WriteTimeout,
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

// stopAll ends everything that the socket does but writing what is queued.
func (s *socket) stopAll() {
	s.cancel()
	s.deadline.Stop()
	if s.pulse != nil {
		s.pulse.Stop()
	}
}

// heard notes a sign of life from the peer. It does not extend the time that a
// message has to come.
func (s *socket) heard() {
	deadline := time.Now().Add(2 * s.set.api.config.PingInterval)
	if !s.due.IsZero() && s.due.Before(deadline) {
		deadline = s.due
	}
	s.queue.ExpectBy(deadline)
}

// read is the socket's life, from the handshake to the end of the connection.
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

// receive reads the next message, as gorilla's ReadMessage does, but within the
// budget and the time that a message has.
func (s *socket) receive() (kind int, data []byte, err error) {
	kind, reader, err := s.conn.NextReader()
	if err != nil {
		return kind, nil, err
	}
	s.due = time.Now().Add(s.set.api.config.MessageTimeout)
	s.heard()
	most := maxInit // the bound of the connection, for what it inflates
	if s.acked {
		most = s.set.api.config.MaxBody
	}
	data, s.giveBack, err = incoming.ReadMessage(reader, most, s.set.api.bodies, freeMessage)
	s.due = time.Time{}
	return kind, data, err
}

// end leaves nothing behind after the last read, which failed with err.
func (s *socket) end(err error) {
	if errors.Is(err, websocket.ErrReadLimit) { // gorilla has sent 1009
		s.linger()
	}
	var closed *websocket.CloseError
	s.queue.EndReading(errors.As(err, &closed))
}

// linger reads what a client still sends after our last frame. To close at once
// would reset the connection, and the client might never read that frame.
func (s *socket) linger() {
	conn := s.conn.NetConn()
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(closeWait))
	_, _ = io.CopyN(io.Discard, conn, 4*int64(s.set.api.config.MaxBody))
}

// handle obeys one message.
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

// init learns who the client is, once and for all.
func (s *socket) init(ctx context.Context, m message) {
	if s.greeted {
		s.queue.Close(closeTooManyInits, "Too many initialisation requests")
		return
	}
	s.greeted = true
	s.deadline.Stop() // from here on the client waits for us
	token, ok, err := incoming.InitCredential(m.Payload)
	if err != nil {
		s.queue.Close(closeBadRequest, "Invalid message received: the payload is no object")
		return
	}
	if ok && token == "" {
		token, ok = s.token, s.tokenOK
	}
	var viewer account.Viewer
	var expires time.Time
	if err = errForbidden; ok {
		// In another goroutine: the reader would keep the stack that the look-up needs.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if !limit.InTurn(ctx, s.set.lookUps, 1, func() { viewer, expires, err = s.set.api.identify(ctx, token, s.address) }) {
				err = ctx.Err()
			}
		}()
		<-done
	}
	if isForbidden(err) {
		s.forbid()
		return
	}
	if err != nil {
		_ = s.set.api.unidentified(ctx, "authenticate a socket", err)
		s.closeForNow()
		return
	}
	s.token, s.acked = token, true
	s.unwatch = s.set.sessions.watch(viewer.Grant(), s.forbid)
	s.conn.SetReadLimit(int64(s.set.api.config.MaxBody))
	s.queue.Send(websocket.TextMessage, frame("connection_ack", "", nil))
	s.queue.WhileOpen(func() {
		if !expires.IsZero() {
			s.deadline = time.AfterFunc(time.Until(expires), s.forbid)
		}
		s.pulse = time.AfterFunc(s.set.api.config.PingInterval, s.beat)
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
		s.giveBack = func() {} // the operation does
	}
}

// forbid closes the socket of a session that has ended. Frames that wait in the
// queue are not delivered any more.
func (s *socket) forbid() {
	s.queue.CloseNow(closeForbidden, "Forbidden")
}

// closeForNow closes the socket because of something that may work the next time.
// Clients take the messages "error" and "complete" for final: only this makes them
// come back.
func (s *socket) closeForNow() { s.queue.Close(websocket.CloseTryAgainLater, "Try again later") }

// beat asks the peer for a sign of life: by a ping, which every WebSocket library
// answers, and by a message that the page's script can see.
func (s *socket) beat() {
	s.queue.Send(websocket.PingMessage, nil)
	s.queue.Send(websocket.TextMessage, beatMessage)
	s.queue.WhileOpen(func() { s.pulse.Reset(s.set.api.config.PingInterval) })
}

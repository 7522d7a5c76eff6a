package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/account"
	"tideline/graph"
	"tideline/graph/exec"
)

// closeWait is how long a peer may take to answer our close frame.
const closeWait = 2 * time.Second

// socket is one WebSocket connection. One goroutine reads it for as long as it
// is open; another executes a query or mutation, or what a subscription has when
// it has something, and one writes while there is something to write: results
// wait in a bounded queue, never in a send. A client that lets the queue fill is
// closed with 1013.
type socket struct {
	set     *sockets
	conn    *websocket.Conn
	dialect *dialect // nil until a subprotocol is agreed: then nothing is read
	address string
	cancel  context.CancelFunc

	// The reader's alone until connection_ack, unchanged afterwards.
	greeted  bool // connection_init has come
	acked    bool // and has been answered
	token    string
	serial   int       // of operations, for their ids in the log
	forget   func()    // stops the watch of the session
	due      time.Time // when the message that is being read must have come
	giveBack func()    // what the message took, unless an operation will

	mu         sync.Mutex
	queue      []outgoing
	queued     int // bytes in queue
	writing    bool
	closing    bool // a close frame is queued or written: nothing else follows
	draining   bool // no new operations; closes when the last short one is done
	operations map[string]*operation
	running    int         // operations, ended ones that have yet to stop included
	short      int         // queries and mutations under way
	deadline   *time.Timer // for connection_init, then for the token
	pulse      *time.Timer // nil until connection_ack
	deaf       bool        // the reader has ended: the writer closes the connection
}

type outgoing struct {
	kind int // as in websocket.TextMessage
	data []byte
}

// operation is one query, mutation or subscription under way.
type operation struct {
	id       string
	cancel   context.CancelFunc
	giveBack func() // what its message took

	// Of a subscription that has begun, guarded by the socket's mu.
	subscription *exec.Subscription
	ctx          context.Context
	news         bool // there may be more to read than has been read
	reading      bool // by a goroutine that exists as long
}

func newSocket(set *sockets, conn *websocket.Conn, address string, cancel context.CancelFunc) *socket {
	s := &socket{
		set:        set,
		conn:       conn,
		dialect:    dialectOf(conn.Subprotocol()),
		address:    address,
		cancel:     cancel,
		operations: make(map[string]*operation),
		forget:     func() {},
		giveBack:   func() {},
	}
	conn.SetReadLimit(maxInit)
	conn.SetPongHandler(func(string) error { s.heard(); return nil })
	conn.SetPingHandler(func(data string) error {
		s.heard()
		s.send(websocket.PongMessage, []byte(data))
		return nil
	})
	conn.SetCloseHandler(func(code int, _ string) error { s.close(code, ""); return nil })
	s.heard()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = time.AfterFunc(set.config.InitTimeout, func() {
		s.close(closeInitTimeout, "Connection initialisation timeout")
	})
	if s.dialect == nil {
		s.closeLocked(closeNotAcceptable, "Subprotocol not acceptable")
	}
	return s
}

// heard notes a sign of life from the peer.
func (s *socket) heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		deadline := time.Now().Add(2 * s.set.config.PingInterval)
		if !s.due.IsZero() && s.due.Before(deadline) {
			deadline = s.due
		}
		_ = s.conn.SetReadDeadline(deadline) // a closed one fails its read
	}
}

// read is the socket's life, from handshake to the end of the connection.
func (s *socket) read(ctx context.Context) {
	defer s.set.forget(s)
	defer func() { s.forget() }()
	for {
		kind, data, err := s.receive()
		if err != nil && !errors.Is(err, errBusy) {
			s.end(err)
			return
		}
		s.heard()
		switch {
		case err != nil:
			s.close(websocket.CloseTryAgainLater, "Too many large messages at once")
		case s.closed():
			// What the client sent before it saw our close frame.
		case kind != websocket.TextMessage:
			s.close(closeBadRequest, "Invalid message received: it is not text")
		default:
			s.handle(ctx, data)
		}
		s.giveBack()
	}
}

// end leaves nothing behind after the last read, which failed with err.
func (s *socket) end(err error) {
	if errors.Is(err, websocket.ErrReadLimit) { // gorilla has sent 1009
		s.linger()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandonLocked()
	var closed *websocket.CloseError
	if errors.As(err, &closed) && s.writing {
		s.deaf = true // our answer to the peer's close frame is still to be written
		return
	}
	s.queue = nil
	s.conn.Close()
}

// linger takes in what a client still sends after our last word: closing at
// once would reset the connection, and the client might never read that word.
func (s *socket) linger() {
	conn := s.conn.NetConn()
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(closeWait))
	_, _ = io.CopyN(io.Discard, conn, 4*s.set.api.maxBody)
}

func (s *socket) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// handle obeys one message.
func (s *socket) handle(ctx context.Context, data []byte) {
	m, err := parseMessage(data)
	if err != nil {
		s.close(closeBadRequest, "Invalid message received: "+err.Error())
		return
	}
	switch m.Type {
	case "connection_init":
		s.init(ctx, m)
		return
	case "ping":
		if !s.dialect.legacy {
			s.send(websocket.TextMessage, frame("pong", "", m.Payload))
			return
		}
	case "pong":
		if !s.dialect.legacy {
			return
		}
	case "connection_terminate":
		if s.dialect.legacy {
			s.close(websocket.CloseNormalClosure, "")
			return
		}
	case s.dialect.start:
		s.start(ctx, m)
		return
	case s.dialect.stop:
		s.stop(m.ID)
		return
	}
	s.close(closeBadRequest, fmt.Sprintf("Invalid message received: no client sends %q", m.Type))
}

// init says who the client is, once and for all.
func (s *socket) init(ctx context.Context, m message) {
	if s.greeted {
		s.close(closeTooManyInits, "Too many initialisation requests")
		return
	}
	s.greeted = true
	s.mu.Lock()
	s.deadline.Stop() // from here on it is we who take time
	s.mu.Unlock()
	token, ok, err := initToken(m.Payload)
	if err != nil {
		s.close(closeBadRequest, "Invalid message received: the payload is no object")
		return
	}
	var viewer account.Viewer
	var expires time.Time
	if err = errForbidden; ok {
		// Elsewhere: the stack that the look-up needs would stay with the reader.
		done := make(chan struct{})
		go func() {
			defer close(done)
			if !inTurn(ctx, s.set.lookUps, func() { viewer, expires, err = s.set.api.identify(ctx, token) }) {
				err = ctx.Err()
			}
		}()
		<-done
	}
	if errors.Is(err, errForbidden) {
		s.forbid()
		return
	}
	if err != nil {
		_ = s.set.api.internal(ctx, "authenticate a socket", err)
		s.later()
		return
	}
	s.token, s.acked = token, true
	s.forget = s.set.sessions.hold(viewer.Session, s.forbid)
	s.conn.SetReadLimit(s.set.api.maxBody)
	s.send(websocket.TextMessage, frame("connection_ack", "", nil))
	if s.dialect.legacy {
		s.send(websocket.TextMessage, s.dialect.beat)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	if !expires.IsZero() {
		s.deadline = time.AfterFunc(time.Until(expires), s.forbid)
	}
	s.pulse = time.AfterFunc(s.set.config.PingInterval, s.beat)
}

// forbid closes the socket of a session that has ended; nothing that waits in
// the queue is delivered any more.
func (s *socket) forbid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.queue, s.queued = nil, 0
	if s.dialect.legacy && s.pulse == nil {
		s.sendLocked(websocket.TextMessage, frame("connection_error", "", []byte(`{"message":"Forbidden"}`)))
	}
	s.closeLocked(closeForbidden, "Forbidden")
}

// beat asks the peer for a sign of life: a ping that every WebSocket library
// answers, and a message that the page's script can see.
func (s *socket) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.sendLocked(websocket.PingMessage, nil)
	s.sendLocked(websocket.TextMessage, s.dialect.beat)
	s.pulse.Reset(s.set.config.PingInterval)
}

// start begins an operation.
func (s *socket) start(ctx context.Context, m message) {
	if !s.acked {
		s.close(closeUnauthorized, "Unauthorized")
		return
	}
	if m.ID == "" {
		s.close(closeBadRequest, "Invalid message received: an operation needs an id")
		return
	}
	request, err := parseRequest(m.Payload)
	if err != nil {
		s.close(closeBadRequest, "Invalid message received: "+err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.draining {
		return
	}
	if old, taken := s.operations[m.ID]; taken {
		if !s.dialect.legacy {
			s.closeLocked(closeSubscriberTwice, "Subscriber for "+m.ID+" already exists")
			return
		}
		old.cancel() // the older protocol starts it anew
	}
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{id: m.ID, cancel: cancel, giveBack: func() {}}
	s.operations[m.ID] = op
	if s.running >= s.set.config.Operations {
		cancel()
		s.finishLocked(op, s.errors(ctx, m.ID, refusalOf(codeRateLimited,
			"A connection may have %d operations under way at once.", s.set.config.Operations)))
		return
	}
	op.giveBack, s.giveBack = s.giveBack, op.giveBack
	s.running++
	s.serial++
	ctx = withRequestID(ctx, fmt.Sprintf("%s.%d", requestID(ctx), s.serial))
	s.set.running.Add(1)
	go s.run(ctx, op, request)
}

// stop ends an operation for the client, who hears no more of it.
func (s *socket) stop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op, found := s.operations[id]
	if !found {
		return // it has just ended by itself
	}
	op.cancel()
	if s.dialect.legacy {
		s.finishLocked(op, frame("complete", id, nil))
		return
	}
	delete(s.operations, id)
}

// run executes an operation to its end.
func (s *socket) run(ctx context.Context, op *operation, request exec.Request) {
	defer s.set.running.Done()
	defer s.flush()
	subscribed := false
	defer op.giveBack()
	defer func() {
		if !subscribed {
			op.cancel()
			s.stopped()
		}
	}()
	defer s.recover(ctx, op)
	begun := time.Now()
	var viewer account.Viewer
	var prepared *exec.Operation
	inTurn(ctx, s.set.lookUps, func() { viewer, prepared = s.prepare(ctx, op, request) })
	if prepared == nil {
		return
	}
	if prepared.Kind() == ast.Subscription {
		subscribed = s.subscribe(graph.WithViewer(ctx, viewer), op, viewer, prepared)
		return
	}
	if !s.hold() {
		return
	}
	defer s.release()
	response := s.set.api.execute(ctx, begun, viewer, prepared)
	if response.Data == nil {
		s.finish(op, s.errors(ctx, op.id, response.Errors))
		return
	}
	s.emit(ctx, op, response)
	s.finish(op, frame("complete", op.id, nil))
}

// prepare makes an operation of a request; nil when there is none.
func (s *socket) prepare(ctx context.Context, op *operation, request exec.Request) (account.Viewer, *exec.Operation) {
	// A session may have been ended since the socket was opened.
	viewer, _, err := s.set.api.identify(ctx, s.token)
	if errors.Is(err, errForbidden) {
		s.forbid()
		return viewer, nil
	}
	if err != nil {
		_ = s.set.api.internal(ctx, "authenticate an operation", err)
		s.later()
		return viewer, nil
	}
	prepared, errs := s.set.api.prepare(ctx, viewer, s.address, request)
	if len(errs) > 0 {
		s.finish(op, s.errors(ctx, op.id, errs))
		return viewer, nil
	}
	return viewer, prepared
}

func (s *socket) recover(ctx context.Context, op *operation) {
	if cause := recover(); cause != nil {
		err := fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		s.finish(op, s.errors(ctx, op.id, s.set.api.internal(ctx, "operation over a socket", err)))
	}
}

// stopped counts an operation no longer.
func (s *socket) stopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// subscribe begins a subscription, which lasts until the context of its
// operation is cancelled; ok=false when it could not.
func (s *socket) subscribe(ctx context.Context, op *operation, viewer account.Viewer, prepared *exec.Operation) (ok bool) {
	subscription, errs := s.set.api.subscribe(ctx, viewer, prepared, func() { s.wake(op) })
	if codeOf(errs) == codeInternal {
		s.later()
		return false
	}
	if len(errs) > 0 {
		s.finish(op, s.errors(ctx, op.id, errs))
		return false
	}
	context.AfterFunc(ctx, s.stopped)
	s.mu.Lock()
	op.subscription, op.ctx = subscription, ctx
	s.mu.Unlock()
	s.wake(op)
	return true
}

// wake has the subscription read. It returns at once.
func (s *socket) wake(op *operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op.news = true
	if op.reading || op.subscription == nil || s.closing {
		return
	}
	op.reading = true
	s.set.running.Add(1)
	go s.forward(op)
}

// forward passes on what a subscription has.
func (s *socket) forward(op *operation) {
	defer s.set.running.Done()
	defer s.flush()
	defer s.recover(op.ctx, op)
	for s.hasNews(op) {
		for response, ok := op.subscription.Next(op.ctx); ok; response, ok = op.subscription.Next(op.ctx) {
			stamp(op.ctx, response.Errors)
			s.emit(op.ctx, op, response)
		}
		if op.subscription.Ended() {
			s.ended(op)
			return
		}
	}
}

// hasNews reports whether there may be more to read since the last time.
func (s *socket) hasNews(op *operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	op.reading, op.news = op.news, false
	return op.reading
}

// ended says that the subscription has.
func (s *socket) ended(op *operation) {
	ctx := op.ctx
	if ctx.Err() != nil {
		return
	}
	if op.subscription.Interrupted() {
		s.later()
		return
	}
	// It may have ended because its session did: then the socket goes too.
	switch _, _, err := s.set.api.identify(ctx, s.token); {
	case err == nil:
		s.finish(op, frame("complete", op.id, nil))
	case errors.Is(err, errForbidden):
		s.forbid()
	default:
		_ = s.set.api.internal(ctx, "authenticate the end of a stream", err)
		s.later()
	}
}

// later closes the socket for what may work the next time: a client takes the
// messages "error" and "complete" for final, and only this makes it come back.
func (s *socket) later() { s.close(websocket.CloseTryAgainLater, "Try again later") }

// hold keeps a draining socket open for a query or mutation; false when it is
// too late to begin one.
func (s *socket) hold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.draining {
		return false
	}
	s.short++
	return true
}

func (s *socket) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short--
	if s.draining && s.short == 0 {
		s.closeLocked(websocket.CloseServiceRestart, "Restarting")
	}
}

// drain closes the socket as soon as its queries and mutations are answered.
func (s *socket) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.short == 0 {
		s.closeLocked(websocket.CloseServiceRestart, "Restarting")
	}
}

// emit queues a result of an operation that has not ended. Its caller flushes when
// there is no more.
func (s *socket) emit(ctx context.Context, op *operation, response exec.Response) {
	data, err := s.dialect.nextFrame(op.id, response)
	if err != nil {
		s.finish(op, s.errors(ctx, op.id, s.set.api.internal(ctx, "encode a result", err)))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.operations[op.id] == op {
		s.wakeLocked() // for those before it
		s.queueLocked(websocket.TextMessage, data)
	}
}

// finish ends an operation with its last message, unless it has ended already.
func (s *socket) finish(op *operation, last []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(op, last)
}

func (s *socket) finishLocked(op *operation, last []byte) {
	if s.operations[op.id] != op {
		return
	}
	op.cancel()
	delete(s.operations, op.id)
	s.sendLocked(websocket.TextMessage, last)
}

// errors is the message that ends an operation which was not executed.
func (s *socket) errors(ctx context.Context, id string, errs gqlerror.List) []byte {
	data, err := s.dialect.errorFrame(id, errs)
	if err == nil {
		return data
	}
	data, _ = s.dialect.errorFrame(id, s.set.api.internal(ctx, "encode errors", err)) // plain strings always marshal
	return data
}

package transport

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"tideline/graph/exec"
	"tideline/internal/trace"
)

// operations are the operations in progress on one socket. Only an operation in byID may send: after the
// client has stopped it, and after its last message, nothing of it is sent.
//
// Its lock is acquired before the queue's lock.
type operations struct {
	socket *socket
	serial int // number of the last operation, for ids in the log; used only by the reader

	mu        sync.Mutex
	byID      map[string]*operation
	running   int           // including ended operations whose goroutines still run
	executing int           // queries and mutations
	draining  bool          // no new operations; the socket closes when nothing executes
	wait      time.Duration // with draining: how long the client waits before it reconnects
}

// start begins an operation. If began is false, none has begun. Otherwise the operation calls giveBack
// when it no longer needs the request.
func (o *operations) start(ctx context.Context, id string, request exec.Request, giveBack func()) (began bool) {
	s := o.socket
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.draining || s.queue.IsClosing() {
		return false
	}
	if o.byID[id] != nil {
		s.queue.Close(closeSubscriberTwice, "Subscriber for "+id+" already exists")
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{socket: s, id: id, cancel: cancel}
	o.byID[id] = op
	if most := s.set.api.config.Operations; o.running >= most {
		cancel()
		o.finishLocked(op, op.errorFrame(ctx, requestError(codeRateLimited,
			"A connection may have %d operations under way at once.", most)))
		return false
	}
	o.running++
	o.serial++
	ctx = WithRequestID(ctx, fmt.Sprintf("%s.%d", RequestID(ctx), o.serial))
	s.set.running.Go(func() { op.run(ctx, request, giveBack) })
	return true
}

// stop ends an operation at the client's request. Nothing more of it is sent.
func (o *operations) stop(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op, found := o.byID[id]
	if !found {
		return // it has just ended by itself
	}
	op.cancel()
	delete(o.byID, id)
}

// stopped counts one operation less.
func (o *operations) stopped() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running--
}

// emit queues a result, unless the operation has ended. The caller calls Flush after the last one. The
// span ends when the result is written.
func (o *operations) emit(op *operation, data []byte, span *trace.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[op.id] == op {
		o.socket.queue.Add(websocket.TextMessage, data, span)
	}
}

// sendNow is emit for a result that is written at once.
func (o *operations) sendNow(op *operation, w *textFrame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[op.id] == op {
		o.socket.queue.SendNow(w)
	}
}

// finish ends an operation with its last message, unless it has ended already.
func (o *operations) finish(op *operation, last []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishLocked(op, last)
}

func (o *operations) finishLocked(op *operation, last []byte) {
	if o.byID[op.id] != op {
		return
	}
	op.cancel()
	delete(o.byID, op.id)
	o.socket.queue.Send(websocket.TextMessage, last)
}

// beginExecuting keeps a draining socket open for a query or mutation until endExecuting. ok is false if the
// socket is already draining or closing.
func (o *operations) beginExecuting() (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.draining || o.socket.queue.IsClosing() {
		return false
	}
	o.executing++
	return true
}

func (o *operations) endExecuting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.executing--
	o.closeDrainedLocked()
}

// activity implements client.
func (o *operations) activity() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.executing > 0:
		return executing
	case o.running > 0:
		return subscribed
	}
	return idle
}

// leave implements client.
func (o *operations) leave(wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draining, o.wait = true, wait
	o.closeDrainedLocked()
}

func (o *operations) closeDrainedLocked() {
	if o.draining && o.executing == 0 {
		o.socket.queue.Close(websocket.CloseServiceRestart, reconnectIn(o.wait))
	}
}

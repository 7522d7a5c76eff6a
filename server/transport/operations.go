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

// operations are those of one socket that are under way. Only an operation that is
// among them may send: what the client has stopped is heard of no more, and
// nothing follows the last message of an operation.
//
// Its lock is taken before that of the queue.
type operations struct {
	socket *socket
	serial int // of operations, for their ids in the log; the reader's alone

	mu        sync.Mutex
	byID      map[string]*operation
	running   int           // those that have ended but not yet stopped included
	executing int           // queries and mutations
	draining  bool          // no new ones; the socket closes when nothing executes
	wait      time.Duration // until the client may reconnect, then
}

// start begins an operation; began is false when there is none. Else the operation
// calls giveBack when it no longer needs the request.
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

// stop ends an operation for the client, which hears no more of it.
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

// stopped counts an operation no longer.
func (o *operations) stopped() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running--
}

// emit queues a result, unless the operation has ended. The caller flushes when
// there is no more. The span ends when the result is written.
func (o *operations) emit(op *operation, data []byte, span *trace.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[op.id] == op {
		o.socket.queue.Add(websocket.TextMessage, data, span)
	}
}

// sendNow is emit of a result that is written at once.
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

// beginExecuting keeps a draining socket open for a query or mutation, until
// endExecuting; ok is false when it is too late to begin one.
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

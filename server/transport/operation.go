package transport

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/internal/trace"
	"tideline/server/limit"
)

// operation is one query, mutation or subscription in progress on a socket. A query or mutation
// has one goroutine until it is answered. A subscription has one while it begins, and later only
// while there may be responses to read.
type operation struct {
	socket *socket
	id     string
	cancel context.CancelFunc

	mu           sync.Mutex
	subscription *exec.Subscription // nil until the subscription has begun
	ctx          context.Context    // of the subscription
	opening      []byte             // the beginning of each of its frames, up to the payload
	dirty        bool               // there may be responses that reading has not seen
	reading      bool               // a goroutine reads, or is about to
}

// run executes a query or mutation, or begins a subscription.
func (op *operation) run(ctx context.Context, request exec.Request, giveBack func()) {
	s := op.socket
	defer s.queue.Flush()
	subscribed := false
	defer giveBack()
	defer func() {
		if !subscribed {
			op.cancel()
			s.operations.stopped()
		}
	}()
	defer op.recover(ctx)
	begun := time.Now()
	var viewer session.Viewer
	var prepared *exec.Operation
	limit.InTurn(ctx, s.set.lookUps, 1, func() { viewer, prepared = op.prepare(ctx, request) })
	if prepared == nil {
		return
	}
	if prepared.Kind() == ast.Subscription {
		subscribed = op.subscribe(graph.WithViewer(ctx, viewer), viewer, prepared)
		return
	}
	if !s.operations.beginExecuting() {
		return
	}
	defer s.operations.endExecuting()
	response := s.set.api.execute(ctx, begun, viewer, s.address, prepared)
	if response.Data == nil {
		op.fail(ctx, response.Errors)
		return
	}
	op.emit(ctx, response)
	op.complete()
}

// prepare checks the request for the viewer of the socket. If it returns nil, it has told the client why.
func (op *operation) prepare(ctx context.Context, request exec.Request) (session.Viewer, *exec.Operation) {
	s := op.socket
	// The session may have ended since the socket was opened.
	viewer, _, err := s.set.api.identify(ctx, s.token, s.address)
	if isUnauthenticated(err) {
		s.forbid()
		return viewer, nil
	}
	if err != nil {
		_ = s.set.api.unidentified(ctx, "authenticate an operation", err)
		op.closeForNow(ctx)
		return viewer, nil
	}
	prepared, errs := s.set.api.prepare(ctx, viewer, s.address, request)
	if len(errs) > 0 {
		op.fail(ctx, errs)
		return viewer, nil
	}
	return viewer, prepared
}

// recover turns a panic into an error for the client. It must be deferred directly.
func (op *operation) recover(ctx context.Context) {
	if cause := recover(); cause != nil {
		err := fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		op.fail(ctx, op.socket.set.api.internal(ctx, "operation over a socket", err))
	}
}

// subscribe begins a subscription, which lasts until ctx is cancelled. ok is false if it could not begin. It
// waits for its turn as long as ctx lasts.
func (op *operation) subscribe(ctx context.Context, viewer session.Viewer, prepared *exec.Operation) (ok bool) {
	s := op.socket
	subscription, errs := s.set.api.subscribe(ctx, ctx, viewer, s.address, prepared, op.wake)
	if codeOf(errs) == codeInternal {
		op.closeForNow(ctx)
		return false
	}
	if len(errs) > 0 {
		op.fail(ctx, errs)
		return false
	}
	context.AfterFunc(ctx, s.operations.stopped)
	subscription.SetTell(op.tell)
	op.mu.Lock()
	op.subscription, op.ctx, op.opening = subscription, ctx, append(beginFrame("next", op.id, 0), payloadKey...)
	op.mu.Unlock()
	op.wake()
	return true
}

// wake makes a goroutine read the subscription. It returns at once.
func (op *operation) wake() {
	if op.beginReading() {
		op.socket.set.running.Go(op.forward)
	}
}

// tell sends the next response in the caller's goroutine if many clients share it. While the shared response
// is being made, tell returns a channel to wait on. Any other response is read by a goroutine of its own.
func (op *operation) tell() (wait <-chan struct{}) {
	if !op.beginReading() {
		return nil
	}
	defer op.recover(op.ctx)
	w := beginTextFrame()
	defer w.End()
	var sent bool
	if w.Text, sent, wait = op.subscription.AppendShared(op.ctx, append(w.Text, op.opening...)); sent {
		w.Text = append(w.Text, '}')
		op.socket.operations.sendNow(op, w)
	}
	if !sent && wait == nil || op.keepReading() {
		op.socket.set.running.Go(op.forward)
	}
	return wait
}

// beginReading reports whether the caller must read. If another goroutine reads, that one reads again.
func (op *operation) beginReading() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.dirty = op.reading || op.subscription == nil || op.socket.queue.IsClosing()
	op.reading = op.reading || !op.dirty
	return !op.dirty
}

// forward sends the responses of the subscription until there are no more for now.
func (op *operation) forward() {
	defer op.socket.queue.Flush()
	defer op.recover(op.ctx)
	ctx := trace.Joinable(op.ctx)
	for more := true; more; more = op.keepReading() {
		for response, ok := op.subscription.Next(ctx); ok; response, ok = op.subscription.Next(ctx) {
			stamp(ctx, response.Errors)
			op.emit(ctx, response)
			trace.Join(ctx, nil)
		}
		if errs := op.subscription.Refused(); errs != nil {
			op.fail(op.ctx, errs)
			return
		}
		if op.subscription.Ended() {
			op.ended()
			return
		}
	}
}

// keepReading reports whether there may be more responses to read. If not, the next
// wake starts another goroutine.
func (op *operation) keepReading() bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.reading, op.dirty = op.dirty, false
	return op.reading
}

// ended tells the client that the subscription has ended.
func (op *operation) ended() {
	s, ctx := op.socket, op.ctx
	if ctx.Err() != nil {
		return
	}
	if op.subscription.Interrupted() {
		op.closeForNow(ctx)
		return
	}
	// If the subscription ended because its session did, the socket ends too.
	switch _, _, err := s.set.api.identify(ctx, s.token, s.address); {
	case err == nil:
		op.complete()
	case isUnauthenticated(err):
		s.forbid()
	default:
		_ = s.set.api.unidentified(ctx, "authenticate the end of a stream", err)
		op.closeForNow(ctx)
	}
}

// closeForNow closes the socket after the operation failed, unless the client has stopped the operation.
func (op *operation) closeForNow(ctx context.Context) {
	if ctx.Err() == nil {
		op.socket.closeForNow()
	}
}

// emit queues a result.
func (op *operation) emit(ctx context.Context, response exec.Response) {
	data, err := nextFrame(op.id, response)
	if err != nil {
		op.fail(ctx, op.socket.set.api.internal(ctx, "encode a result", err))
		return
	}
	_, span := trace.Begin(ctx, "write to socket")
	op.socket.operations.emit(op, data, span)
}

// complete ends the operation after its last result.
func (op *operation) complete() { op.socket.operations.finish(op, frame("complete", op.id, nil)) }

// fail ends the operation with request errors: it was not executed.
func (op *operation) fail(ctx context.Context, errs gqlerror.List) {
	op.socket.operations.finish(op, op.errorFrame(ctx, errs))
}

// errorFrame returns the frame that fail sends.
func (op *operation) errorFrame(ctx context.Context, errs gqlerror.List) []byte {
	s := op.socket
	data, err := errorFrame(op.id, errs)
	if err == nil {
		return data
	}
	data, _ = errorFrame(op.id, s.set.api.internal(ctx, "encode errors", err)) // plain strings always marshal
	return data
}

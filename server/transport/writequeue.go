package transport

import (
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"

	"tideline/internal/trace"
)

// closeWait is how long a peer may take to answer our close frame.
const closeWait = 2 * time.Second

// leastDeflated is how many bytes a message must have to be compressed. An event of a
// post of usual length has fewer: it would be a third smaller, and take 15 µs and more
// to write instead of 2.
const leastDeflated = 1024

// writeQueueConfig is what a writeQueue works with. All fields but Deflate are required.
type writeQueueConfig struct {
	Conn         *websocket.Conn
	MaxFrames    int
	MaxBytes     int // a single frame may be larger
	WriteTimeout time.Duration
	Deflate      bool            // compresses large messages, as the peer has agreed to
	Overflowed   func()          // called when the queue is full
	Stopped      func()          // called once, under the lock, when the queue takes no more frames
	Running      *sync.WaitGroup // counts the goroutine that writes
}

// writeQueue is the writing half of a socket: a bounded queue of frames, and a goroutine
// that exists only while there are any, so that an idle socket does not pay for one.
// To queue a frame never waits. A queue that is full belongs to a client that does not
// read: it is closed with 1013.
//
// Its lock is the last one to be taken. A writeQueue must not be copied.
type writeQueue struct {
	writeQueueConfig

	mu         sync.Mutex
	frames     []queuedFrame
	bytes      int // in frames
	writing    bool
	closing    bool // the close frame is queued or written, or the connection is lost: no frame follows
	readerDone bool // nobody reads any more: the writer closes the connection
	raw        syscall.RawConn
	rawless    bool // there is no raw
}

type queuedFrame struct {
	kind int // as in websocket.TextMessage
	data []byte
	span *trace.Span // ends when the frame is written; nil without
}

// Send queues a frame and has it written.
func (q *writeQueue) Send(kind int, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(kind, data, nil)
	q.startLocked()
}

// Add queues a frame and has those before it written. The caller flushes when it
// has no more to add. The span, which may be nil, ends when the frame is written.
func (q *writeQueue) Add(kind int, data []byte, span *trace.Span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startLocked()
	q.addLocked(kind, data, span)
}

func (q *writeQueue) addLocked(kind int, data []byte, span *trace.Span) {
	if q.closing {
		return
	}
	if len(q.frames) >= q.MaxFrames || len(q.frames) > 0 && q.bytes+len(data) > q.MaxBytes {
		q.frames, q.bytes = nil, 0
		q.Overflowed()
		q.closeLocked(websocket.CloseTryAgainLater, "Too slow")
		return
	}
	q.frames = append(q.frames, queuedFrame{kind, data, span})
	q.bytes += len(data)
}

// Close ends the connection by a close frame, after the frames that are queued
// already. Only the first call counts.
func (q *writeQueue) Close(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked(code, reason)
}

// CloseNow is Close without the frames that are queued.
func (q *writeQueue) CloseNow(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	q.frames, q.bytes = nil, 0
	q.closeLocked(code, reason)
}

func (q *writeQueue) closeLocked(code int, reason string) {
	if q.closing {
		return
	}
	q.stopLocked()
	q.frames = append(q.frames, queuedFrame{websocket.CloseMessage, websocket.FormatCloseMessage(code, clip(reason)), nil})
	q.startLocked()
}

// stopLocked takes no more frames.
func (q *writeQueue) stopLocked() {
	if !q.closing {
		q.closing = true
		q.Stopped()
	}
}

// clip fits a reason into a close frame.
func clip(reason string) string {
	const most = 123
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "")
	}
	return reason
}

// IsClosing reports whether the queue takes no more frames.
func (q *writeQueue) IsClosing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

// WhileOpen calls do under the lock, unless the queue takes no more frames.
func (q *writeQueue) WhileOpen(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		do()
	}
}

// ExpectBy sets the time by which the peer must be heard of. When the queue takes
// no more frames it does nothing: the peer then has CloseWait for its close frame.
func (q *writeQueue) ExpectBy(deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		_ = q.Conn.SetReadDeadline(deadline) // a connection that is closed fails its read
	}
}

// EndReading closes the connection after its last read. When the peer has sent a
// Close frame, our answer may still have to be written: then the writer closes it.
func (q *writeQueue) EndReading(peerClosed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	if peerClosed && q.writing {
		q.readerDone = true
		return
	}
	q.frames = nil
	q.Conn.Close()
}

// startLocked has the queue written by a goroutine of its own.
func (q *writeQueue) startLocked() {
	if !q.writing && len(q.frames) > 0 {
		q.writing = true
		q.Running.Go(q.write)
	}
}

// Flush writes the queue in the goroutine of a caller that has nothing else to do:
// a result that comes alone needs no other one.
func (q *writeQueue) Flush() {
	q.mu.Lock()
	mine := !q.writing && len(q.frames) > 0
	q.writing = q.writing || mine
	q.mu.Unlock()
	if mine {
		q.write()
	}
}

// write empties the queue.
func (q *writeQueue) write() {
	for {
		next, ok := q.take()
		if !ok {
			return
		}
		deadline := time.Now().Add(q.WriteTimeout)
		var err error
		switch next.kind {
		case websocket.TextMessage:
			_ = q.Conn.SetWriteDeadline(deadline) // gorilla only notes it
			err = q.writeText(next.data)
		case partial:
			_ = q.Conn.NetConn().SetWriteDeadline(deadline)
			_, err = q.Conn.NetConn().Write(next.data)
		default:
			err = q.Conn.WriteControl(next.kind, next.data, deadline)
		}
		next.span.End(err)
		if err != nil {
			q.lose()
			return
		}
	}
}

// writeText writes a message, compressed if it is large. It compresses in memory first:
// an encoder has 1.2 MB, and none is held while a client is slow to read.
func (q *writeQueue) writeText(data []byte) error {
	large := q.Deflate && len(data) >= leastDeflated
	q.Conn.EnableWriteCompression(large)
	if !large {
		return q.Conn.WriteMessage(websocket.TextMessage, data)
	}
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, data)
	if err != nil {
		return err
	}
	return q.Conn.WritePreparedMessage(message)
}

// take is the next frame to write; ok is false when the queue is empty, and the
// writer is done.
func (q *writeQueue) take() (next queuedFrame, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) > 0 {
		next = q.frames[0]
		q.frames[0] = queuedFrame{}
		q.frames = q.frames[1:]
		q.bytes -= len(next.data)
		return next, true
	}
	q.frames, q.bytes, q.writing = nil, 0, false
	switch {
	case q.readerDone:
		q.Conn.Close()
	case q.closing:
		_ = q.Conn.SetReadDeadline(time.Now().Add(closeWait)) // for the peer's close frame
	}
	return queuedFrame{}, false
}

// lose gives up a connection that did not take a frame in time.
func (q *writeQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loseLocked()
}

func (q *writeQueue) loseLocked() {
	q.stopLocked()
	q.frames, q.bytes = nil, 0
	q.Conn.Close() // which ends the reader
}

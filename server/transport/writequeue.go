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

// leastDeflated is the size in bytes from which a message is compressed. An event with a post of usual length
// is smaller: compression would save a third, and writing it would take 15 µs or more instead of 2.
const leastDeflated = 1024

// writeQueueConfig configures a writeQueue. All fields except Deflate are required.
type writeQueueConfig struct {
	Conn         *websocket.Conn
	MaxFrames    int
	MaxBytes     int // a single frame may be larger
	WriteTimeout time.Duration
	Deflate      bool            // compress large messages; the peer has agreed to it
	Overflowed   func()          // called when the queue is full
	Stopped      func()          // called once, under the lock, when the queue takes no more frames
	Running      *sync.WaitGroup // counts the goroutine that writes
}

// writeQueue is the writing half of a socket. It is a bounded queue of frames with a goroutine that exists
// only while there are frames, so an idle socket does not pay for one. Queueing a frame never waits. If the
// client does not read and the queue is full, the socket is closed with 1013.
//
// Its lock is acquired last. A writeQueue must not be copied.
type writeQueue struct {
	writeQueueConfig

	mu         sync.Mutex
	frames     []queuedFrame
	bytes      int // total size of frames
	writing    bool
	closing    bool // the close frame is queued or written, or the connection is lost: no frame may follow
	readerDone bool // the reader has ended: the writer closes the connection
	raw        syscall.RawConn
	rawless    bool // the connection has no raw
}

type queuedFrame struct {
	kind int // a type of package websocket, or partial
	data []byte
	span *trace.Span // ends when the frame is written; may be nil
}

// Send queues a frame and starts writing.
func (q *writeQueue) Send(kind int, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(kind, data, nil)
	q.startLocked()
}

// Add queues a frame, and starts writing the frames before it. The caller calls Flush after the last one. The
// span, which may be nil, ends when the frame is written.
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

// Close ends the connection with a close frame after the queued frames. Only the first call has an effect.
func (q *writeQueue) Close(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked(code, reason)
}

// CloseNow is Close, but drops the queued frames.
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

// stopLocked makes the queue refuse further frames.
func (q *writeQueue) stopLocked() {
	if !q.closing {
		q.closing = true
		q.Stopped()
	}
}

// clip shortens a reason so that it fits into a close frame.
func clip(reason string) string {
	const most = 123
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "")
	}
	return reason
}

// IsClosing reports whether the queue refuses further frames.
func (q *writeQueue) IsClosing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

// WhileOpen calls do under the lock, unless the queue refuses further frames.
func (q *writeQueue) WhileOpen(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		do()
	}
}

// ExpectBy sets the time by which the peer must send something. It does nothing if the queue refuses further
// frames: the peer then has closeWait for its close frame.
func (q *writeQueue) ExpectBy(deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		_ = q.Conn.SetReadDeadline(deadline) // if the connection is closed, its read fails
	}
}

// EndReading closes the connection after its last read. If the peer has sent a close frame and the writer
// still writes our answer, the writer closes it.
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

// startLocked starts a goroutine that writes the queue, if it is needed.
func (q *writeQueue) startLocked() {
	if !q.writing && len(q.frames) > 0 {
		q.writing = true
		q.Running.Go(q.write)
	}
}

// Flush writes the queue in the caller's goroutine, so that a single result needs no other one.
func (q *writeQueue) Flush() {
	q.mu.Lock()
	mine := !q.writing && len(q.frames) > 0
	q.writing = q.writing || mine
	q.mu.Unlock()
	if mine {
		q.write()
	}
}

// write writes frames until the queue is empty.
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
			_ = q.Conn.SetWriteDeadline(deadline) // gorilla only stores it
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

// writeText writes a message, compressed if it is large. It compresses in memory first, since an encoder has
// 1.2 MB and must not be held while a client reads slowly.
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

// take returns the next frame to write. If the queue is empty, ok is false and the writer must end.
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

// lose gives up a connection after a write has failed.
func (q *writeQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loseLocked()
}

func (q *writeQueue) loseLocked() {
	q.stopLocked()
	q.frames, q.bytes = nil, 0
	q.Conn.Close() // this also ends the reader
}

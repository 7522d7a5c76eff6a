package transport

import (
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// closeWait is how long a peer may take to answer our close frame.
const closeWait = 2 * time.Second

// writeQueue is the writing half of a socket: a bounded queue of frames, and a
// goroutine that exists only while there are any, so that an idle socket does not
// pay for one. To queue a frame never waits. A queue that is full belongs to a
// client that does not read: it is closed with 1013.
//
// Its lock is the last one to be taken.
type writeQueue struct {
	conn         *websocket.Conn
	maxFrames    int
	maxBytes     int // a single frame may be larger
	writeTimeout time.Duration
	overflowed   func()          // called when the queue is full
	stopped      func()          // called once, under the lock, when the queue takes no more frames
	running      *sync.WaitGroup // counts the goroutine that writes

	mu         sync.Mutex
	frames     []frameToWrite
	bytes      int // in frames
	writing    bool
	closing    bool // the close frame is queued or written, or the connection is lost: no frame follows
	readerDone bool // nobody reads any more: the writer closes the connection
}

type frameToWrite struct {
	kind int // as in websocket.TextMessage
	data []byte
}

// send queues a frame and has it written.
func (q *writeQueue) send(kind int, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(kind, data)
	q.startLocked()
}

// add queues a frame and has those before it written. The caller flushes when it
// has no more to add.
func (q *writeQueue) add(kind int, data []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.startLocked()
	q.addLocked(kind, data)
}

func (q *writeQueue) addLocked(kind int, data []byte) {
	if q.closing {
		return
	}
	if len(q.frames) >= q.maxFrames || len(q.frames) > 0 && q.bytes+len(data) > q.maxBytes {
		q.frames, q.bytes = nil, 0
		q.overflowed()
		q.closeLocked(websocket.CloseTryAgainLater, "Too slow")
		return
	}
	q.frames = append(q.frames, frameToWrite{kind, data})
	q.bytes += len(data)
}

// close ends the connection by a close frame, after the frames that are queued
// already. Only the first call counts.
func (q *writeQueue) close(code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeLocked(code, reason)
}

// closeNow is close without the frames that are queued, but after the last one if
// it is not nil.
func (q *writeQueue) closeNow(last []byte, code int, reason string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	q.frames, q.bytes = nil, 0
	if last != nil {
		q.addLocked(websocket.TextMessage, last)
	}
	q.closeLocked(code, reason)
}

func (q *writeQueue) closeLocked(code int, reason string) {
	if q.closing {
		return
	}
	q.stopLocked()
	q.frames = append(q.frames, frameToWrite{websocket.CloseMessage, websocket.FormatCloseMessage(code, clip(reason))})
	q.startLocked()
}

// stopLocked takes no more frames.
func (q *writeQueue) stopLocked() {
	if !q.closing {
		q.closing = true
		q.stopped()
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

// isClosing reports whether the queue takes no more frames.
func (q *writeQueue) isClosing() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closing
}

// whileOpen calls do under the lock, unless the queue takes no more frames.
func (q *writeQueue) whileOpen(do func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		do()
	}
}

// expectBy sets the time by which the peer must be heard of. When the queue takes
// no more frames it does nothing: the peer then has closeWait for its close frame.
func (q *writeQueue) expectBy(deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closing {
		_ = q.conn.SetReadDeadline(deadline) // a connection that is closed fails its read
	}
}

// endReading closes the connection after its last read. When the peer has sent a
// close frame, our answer may still have to be written: then the writer closes it.
func (q *writeQueue) endReading(peerClosed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	if peerClosed && q.writing {
		q.readerDone = true
		return
	}
	q.frames = nil
	q.conn.Close()
}

// startLocked has the queue written by a goroutine of its own.
func (q *writeQueue) startLocked() {
	if !q.writing && len(q.frames) > 0 {
		q.writing = true
		q.running.Go(q.write)
	}
}

// flush writes the queue in the goroutine of a caller that has nothing else to do:
// a result that comes alone needs no other one.
func (q *writeQueue) flush() {
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
		deadline := time.Now().Add(q.writeTimeout)
		var err error
		if next.kind == websocket.TextMessage {
			_ = q.conn.SetWriteDeadline(deadline) // gorilla only notes it
			err = q.conn.WriteMessage(next.kind, next.data)
		} else {
			err = q.conn.WriteControl(next.kind, next.data, deadline)
		}
		if err != nil {
			q.lose()
			return
		}
	}
}

// take is the next frame to write; ok is false when the queue is empty, and the
// writer is done.
func (q *writeQueue) take() (next frameToWrite, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) > 0 {
		next = q.frames[0]
		q.frames[0] = frameToWrite{}
		q.frames = q.frames[1:]
		q.bytes -= len(next.data)
		return next, true
	}
	q.frames, q.bytes, q.writing = nil, 0, false
	switch {
	case q.readerDone:
		q.conn.Close()
	case q.closing:
		_ = q.conn.SetReadDeadline(time.Now().Add(closeWait)) // for the peer's close frame
	}
	return frameToWrite{}, false
}

// lose gives up a connection that did not take a frame in time.
func (q *writeQueue) lose() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
	q.frames, q.bytes = nil, 0
	q.conn.Close() // which ends the reader
}

package transport

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

// headerRoom is the length of the longest frame header that a server sends.
const headerRoom = 10

// textFrame is a text frame under construction, for [writeQueue.SendNow].
type textFrame struct {
	Text []byte // the caller appends to it

	room  []byte // the array behind Text, with room for a header before it
	wire  []byte // the bytes to write
	n     int    // how many bytes of wire were written
	err   error
	write func(fd uintptr) bool // writes wire once, without waiting
}

var textFrames = sync.Pool{New: func() any {
	f := &textFrame{room: make([]byte, headerRoom, 1024)}
	f.write = func(fd uintptr) bool {
		f.n, f.err = writeOnce(fd, f.wire)
		return true // false would make the connection wait until it is writable
	}
	return f
}}

// beginTextFrame returns an empty frame. The caller calls End when it no longer needs the frame.
func beginTextFrame() *textFrame {
	f := textFrames.Get().(*textFrame)
	f.Text = f.room[headerRoom:headerRoom]
	return f
}

// End returns the frame to the pool.
func (f *textFrame) End() {
	if cap(f.Text) > 64<<10 {
		return // too large to keep
	}
	f.Text, f.wire, f.err = nil, nil, nil
	textFrames.Put(f)
}

// seal puts the header before the text. The frame is one whole message, neither masked nor compressed.
func (f *textFrame) seal() {
	n := len(f.Text)
	if headerRoom+n > cap(f.room) { // append has moved the text
		f.room = append(make([]byte, headerRoom, 2*(headerRoom+n)), f.Text...)
		f.Text = f.room[headerRoom:]
	}
	b := f.room[:headerRoom+n]
	var start int
	switch {
	case n < 126:
		start = headerRoom - 2
		b[start+1] = byte(n)
	case n < 1<<16:
		start = headerRoom - 4
		b[start+1] = 126
		binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	default:
		start = 0
		b[start+1] = 127
		binary.BigEndian.PutUint64(b[start+2:], uint64(n))
	}
	b[start] = 1<<7 | websocket.TextMessage
	f.wire = b[start:]
}

// SendNow is Send for a frame that the caller writes itself. It does not wait: bytes that the kernel
// does not take at once are queued.
func (q *writeQueue) SendNow(f *textFrame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	rest := queuedFrame{websocket.TextMessage, f.Text, nil}
	if !q.writing && len(q.frames) == 0 && q.rawLocked() != nil {
		f.seal()
		switch err := q.writeLocked(f); {
		case err != nil && !errors.Is(err, syscall.EAGAIN):
			q.loseLocked()
			return
		case err == nil && f.n == len(f.wire):
			return
		case f.n > 0:
			rest = queuedFrame{partial, f.wire[f.n:], nil}
		}
	}
	q.addLocked(rest.kind, append([]byte(nil), rest.data...), nil)
	q.startLocked()
}

// partial is the kind of a queued frame whose beginning is already written. It
// includes the rest of the header.
const partial = -1

// writeLocked writes as much of the frame as the kernel takes at once.
func (q *writeQueue) writeLocked(f *textFrame) error {
	f.n, f.err = 0, nil
	err := q.raw.Write(f.write)
	if errors.Is(err, os.ErrDeadlineExceeded) { // the deadline of an earlier frame
		_ = q.Conn.NetConn().SetWriteDeadline(time.Time{})
		err = q.raw.Write(f.write)
	}
	f.n = max(f.n, 0)
	return errors.Join(err, f.err)
}

// rawLocked returns the connection for writing without waiting, or nil if it does not support that.
func (q *writeQueue) rawLocked() syscall.RawConn {
	if q.raw == nil && !q.rawless {
		q.rawless = true
		if c, ok := q.Conn.NetConn().(syscall.Conn); ok {
			if raw, err := c.SyscallConn(); err == nil {
				q.raw, q.rawless = raw, false
			}
		}
	}
	return q.raw
}

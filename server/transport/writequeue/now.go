package writequeue

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

// Frame is text frames under construction, for [Queue.SendNow]: whole messages that are
// not masked and not compressed.
type Frame struct {
	Text []byte // the caller appends to it, and seals it when it is a message

	wire   []byte // what is to be written
	sealed int    // messages in wire
	n      int    // how much of wire was written
	err    error
	write  func(fd uintptr) bool // writes wire, once and without waiting
}

var frames = sync.Pool{New: func() any {
	f := &Frame{Text: make([]byte, 0, 1024), wire: make([]byte, 0, 1024)}
	f.write = func(fd uintptr) bool {
		f.n, f.err = writeOnce(fd, f.wire)
		return true // or the connection would wait until it can be written
	}
	return f
}}

// Begin returns an empty frame. The caller calls End when it no longer needs it.
func Begin() *Frame { return frames.Get().(*Frame) }

// End gives the frame back.
func (f *Frame) End() {
	if cap(f.Text)+cap(f.wire) > 128<<10 {
		return // a rare one: not to be kept
	}
	f.Text, f.wire, f.sealed, f.err = f.Text[:0], f.wire[:0], 0, nil
	frames.Put(f)
}

// Sealed is the number of messages.
func (f *Frame) Sealed() int { return f.sealed }

// Seal ends a message with the text, which is empty then.
func (f *Frame) Seal() {
	f.wire = append(f.wire, 1<<7|websocket.TextMessage)
	switch n := len(f.Text); {
	case n < 126:
		f.wire = append(f.wire, byte(n))
	case n < 1<<16:
		f.wire = binary.BigEndian.AppendUint16(append(f.wire, 126), uint16(n))
	default:
		f.wire = binary.BigEndian.AppendUint64(append(f.wire, 127), uint64(n))
	}
	f.wire = append(f.wire, f.Text...)
	f.Text = f.Text[:0]
	f.sealed++
}

// SendNow is Send for sealed messages that are written by the caller itself, unless that
// would have to wait: what the kernel does not take at once is queued, as one frame.
func (q *Queue) SendNow(f *Frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closing {
		return
	}
	f.n = 0
	if !q.writing && len(q.frames) == 0 && q.rawLocked() != nil {
		switch err := q.writeLocked(f); {
		case err != nil && !errors.Is(err, syscall.EAGAIN):
			q.loseLocked()
			return
		case err == nil && f.n == len(f.wire):
			return
		}
	}
	q.addLocked(wire, append([]byte(nil), f.wire[f.n:]...))
	q.startLocked()
}

// wire is the kind of frames, headers included, of whose first the beginning may be
// written.
const wire = -1

// writeLocked writes as much of the frame as the kernel takes.
func (q *Queue) writeLocked(f *Frame) error {
	f.n, f.err = 0, nil
	err := q.raw.Write(f.write)
	if errors.Is(err, os.ErrDeadlineExceeded) { // that of a frame before
		_ = q.Conn.NetConn().SetWriteDeadline(time.Time{})
		err = q.raw.Write(f.write)
	}
	f.n = max(f.n, 0)
	return errors.Join(err, f.err)
}

// rawLocked returns the connection for writing without waiting, nil if it is none.
func (q *Queue) rawLocked() syscall.RawConn {
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

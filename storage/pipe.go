package storage

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// pipeLimit bounds the unread answers of a client, in bytes. Beyond it the connection is
	// closed, as Redis closes a subscriber that does not read. Without a buffer, one such
	// subscriber would block the whole server.
	pipeLimit = 64 << 20
	// pipeKeep is the largest buffer, in bytes, that is kept for reuse when it is empty.
	pipeKeep = 1 << 20
)

var errPipeFull = errors.New("connection closed: too many unread answers")

// newPipe returns the two ends of an in-memory connection. A write never waits for the reader.
func newPipe() (client, server net.Conn) {
	requests, answers := newStream(0), newStream(pipeLimit)
	return &pipeEnd{in: answers, out: requests}, &pipeEnd{in: requests, out: answers}
}

// pipeEnd is a net.Conn. Deadlines apply to reads; writes do not wait.
type pipeEnd struct{ in, out *stream }

func (p *pipeEnd) Read(b []byte) (int, error)         { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error)        { return p.out.write(b) }
func (p *pipeEnd) SetDeadline(t time.Time) error      { return p.SetReadDeadline(t) }
func (p *pipeEnd) SetReadDeadline(t time.Time) error  { p.in.setDeadline(t); return nil }
func (p *pipeEnd) SetWriteDeadline(_ time.Time) error { return nil }
func (p *pipeEnd) LocalAddr() net.Addr                { return pipeAddr{} }
func (p *pipeEnd) RemoteAddr() net.Addr               { return pipeAddr{} }

func (p *pipeEnd) Close() error {
	p.in.close(net.ErrClosed)
	p.out.close(io.EOF)
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "in-process" }

// stream is one direction of a pipe.
type stream struct {
	limit int // maximum of unread bytes; 0 means none

	mu       sync.Mutex
	changed  *sync.Cond
	unread   bytes.Buffer
	closed   error // error for the reader once it has read everything; nil while open
	deadline time.Time
	timer    *time.Timer
}

func newStream(limit int) *stream {
	s := &stream{limit: limit}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case errors.Is(s.closed, net.ErrClosed): // closed by the reader
			return 0, s.closed
		case s.unread.Len() > 0:
			n, err := s.unread.Read(b)
			if s.unread.Len() == 0 && s.unread.Cap() > pipeKeep {
				s.unread = bytes.Buffer{}
			}
			return n, err
		case s.closed != nil:
			return 0, s.closed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return 0, io.ErrClosedPipe
	}
	if s.limit > 0 && s.unread.Len()+len(b) > s.limit {
		s.unread = bytes.Buffer{}
		s.closed = errPipeFull
		s.changed.Broadcast()
		return 0, errPipeFull
	}
	n, err := s.unread.Write(b)
	s.changed.Broadcast()
	return n, err
}

func (s *stream) close(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil || errors.Is(reason, net.ErrClosed) {
		s.closed = reason
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	switch {
	case t.IsZero():
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(t), s.wake)
	default:
		s.timer.Reset(time.Until(t))
	}
	s.changed.Broadcast()
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

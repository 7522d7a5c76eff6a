package server

import (
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// The writing half of a socket: a bounded queue, and a goroutine that exists
// only while something is in it, so that an idle socket does not pay for one.

// send queues a frame.
func (s *socket) send(kind int, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sendLocked(kind, data)
}

func (s *socket) sendLocked(kind int, data []byte) {
	s.queueLocked(kind, data)
	s.wakeLocked()
}

// queueLocked never waits: a queue that is full belongs to a client that does
// not read, and such a client is told to come back later.
func (s *socket) queueLocked(kind int, data []byte) {
	if s.closing {
		return
	}
	config := s.set.config
	if len(s.queue) >= config.QueueFrames || len(s.queue) > 0 && s.queued+len(data) > config.QueueBytes {
		s.queue, s.queued = nil, 0
		s.set.api.metrics.slowSockets.Inc()
		s.closeLocked(websocket.CloseTryAgainLater, "Too slow")
		return
	}
	s.queue = append(s.queue, outgoing{kind, data})
	s.queued += len(data)
}

// close says goodbye, after what is queued already. Only the first call counts.
func (s *socket) close(code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked(code, reason)
}

func (s *socket) closeLocked(code int, reason string) {
	if s.closing {
		return
	}
	s.abandonLocked()
	s.queue = append(s.queue, outgoing{websocket.CloseMessage, websocket.FormatCloseMessage(code, clip(reason))})
	s.wakeLocked()
}

// abandonLocked stops everything that the socket does but writing its queue.
func (s *socket) abandonLocked() {
	s.closing = true
	s.cancel()
	s.deadline.Stop()
	if s.pulse != nil {
		s.pulse.Stop()
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

// wakeLocked has the queue written by another goroutine.
func (s *socket) wakeLocked() {
	if !s.writing && len(s.queue) > 0 {
		s.writing = true
		s.set.running.Add(1)
		go func() {
			defer s.set.running.Done()
			s.write()
		}()
	}
}

// flush writes the queue itself, for who has nothing else to do: a result that
// comes alone needs no other goroutine.
func (s *socket) flush() {
	s.mu.Lock()
	mine := !s.writing && len(s.queue) > 0
	s.writing = s.writing || mine
	s.mu.Unlock()
	if mine {
		s.write()
	}
}

// write empties the queue.
func (s *socket) write() {
	for {
		next, ok := s.take()
		if !ok {
			return
		}
		deadline := time.Now().Add(s.set.config.WriteTimeout)
		var err error
		if next.kind == websocket.TextMessage {
			_ = s.conn.SetWriteDeadline(deadline) // gorilla only notes it
			err = s.conn.WriteMessage(next.kind, next.data)
		} else {
			err = s.conn.WriteControl(next.kind, next.data, deadline)
		}
		if err != nil {
			s.lost()
			return
		}
	}
}

func (s *socket) take() (outgoing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		next := s.queue[0]
		s.queue[0] = outgoing{}
		s.queue = s.queue[1:]
		s.queued -= len(next.data)
		return next, true
	}
	s.queue, s.queued, s.writing = nil, 0, false
	switch {
	case s.deaf:
		s.conn.Close()
	case s.closing:
		_ = s.conn.SetReadDeadline(time.Now().Add(closeWait)) // for the peer's close frame
	}
	return outgoing{}, false
}

// lost gives the connection up: it took no frame within the deadline.
func (s *socket) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandonLocked()
	s.queue, s.queued = nil, 0
	s.conn.Close() // which ends the reader
}

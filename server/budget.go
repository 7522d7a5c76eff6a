package server

import (
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vektah/gqlparser/v2/gqlerror"

	"tideline/graph/exec"
)

const (
	// freeBody is how much of a body is read at no charge, freeMessage how much of
	// a message on a socket, of which there can be more at once; what is larger
	// draws on the budget of all.
	freeBody    = 16 << 10
	freeMessage = 4 << 10
	// bodyBudget is how many bytes of large bodies and messages a process holds at
	// once: who sends them slowly cannot fill the memory.
	bodyBudget = 32 << 20
)

// budget is a number of bytes that many share. A nil budget is unlimited.
type budget struct{ left atomic.Int64 }

func newBudget(bytes int64) *budget {
	b := new(budget)
	b.left.Store(bytes)
	return b
}

func (b *budget) take(n int64) bool {
	if b == nil || b.left.Add(-n) >= 0 {
		return true
	}
	b.left.Add(n)
	return false
}

func (b *budget) giveBack(n int64) {
	if b != nil {
		b.left.Add(n)
	}
}

// maxLasting bounds the document and the variables of a subscription, which live
// as long as it does.
const maxLasting = 16 << 10

// lasting refuses a subscription that would keep too much. Variables count by
// the bytes of their JSON.
func lasting(r exec.Request) gqlerror.List {
	variables, err := json.Marshal(r.Variables)
	if err == nil && len(r.Query)+len(variables) <= maxLasting {
		return nil
	}
	errs := refusalOf(exec.CodeTooComplex, "A subscription may have at most %d bytes of document and variables.", maxLasting)
	errs[0].Extensions["limit"], errs[0].Extensions["allowed"] = "bytes", maxLasting
	return errs
}

// errBusy refuses what is large while there is too much of it.
var errBusy = errors.New("too many large requests at once")

// read reads to the end. What it needed beyond the bytes that are free is taken
// from the budget until release is called, which must be, once or more, when
// what was read is done with. Errors: errBusy, or the reader's own; nothing is
// kept then.
func (b *budget) read(r io.Reader, room, free int) (data []byte, release func(), err error) {
	taken := int64(0)
	defer func() {
		if err != nil {
			b.giveBack(taken)
			data, taken = nil, 0
		}
		if release = func() {}; taken > 0 {
			release = sync.OnceFunc(func() { b.giveBack(taken) })
		}
	}()
	data = make([]byte, 0, min(room, free))
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(data) < cap(data) {
			continue
		}
		grown := make([]byte, len(data), 2*cap(data))
		if cap(grown) > free {
			more := int64(cap(grown)) - taken
			if !b.take(more) {
				return nil, nil, errBusy
			}
			taken += more
		}
		copy(grown, data)
		data = grown
	}
}

// receive reads the next message, as gorilla's ReadMessage does, but within the
// budget and the time that a message has.
func (s *socket) receive() (kind int, data []byte, err error) {
	kind, reader, err := s.conn.NextReader()
	if err != nil {
		return kind, nil, err
	}
	s.due = time.Now().Add(s.set.config.ReadTimeout)
	s.heard()
	data, s.giveBack, err = s.set.api.bodies.read(reader, 512, freeMessage)
	s.due = time.Time{}
	return kind, data, err
}

package live

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// The wire format, version 1. A message is
//
//	version     1 byte, 1
//	kind        1 byte; 0 is a probe: only a mark follows, as a uvarint
//	post        uvarint
//	author      uvarint
//	session     uvarint
//	reason      uvarint length ≤ 256, then the bytes; for Added and Removed a
//	            traceparent may follow after a space
//	recipients  uvarint count ≥ 1, then each user id as a uvarint: the first as
//	            it is, each other as the difference from the one before (≥ 1)
//
// and ends there. Ids are in 0..2^63-1, users in 1..2^63-1. Every uvarint must be
// the shortest for its value, so a message has exactly one encoding. The decoder
// rejects everything else.
const wireVersion = 1

var errMalformed = errors.New("live: malformed message")

// encode encodes ev for the users. The event must be valid. users must be positive,
// distinct, ascending and not empty.
func encode(ev Event, users []int64) []byte {
	b := []byte{wireVersion, byte(ev.Kind)}
	b = binary.AppendUvarint(b, uint64(ev.Post))
	b = binary.AppendUvarint(b, uint64(ev.Author))
	b = binary.AppendUvarint(b, uint64(ev.Session))
	b = binary.AppendUvarint(b, uint64(len(ev.Reason)))
	b = append(b, ev.Reason...)
	b = binary.AppendUvarint(b, uint64(len(users)))
	var last int64
	for _, user := range users {
		b = binary.AppendUvarint(b, uint64(user-last))
		last = user
	}
	return b
}

// encodeProbe encodes the message that a hub sends to itself to check its channel.
// The mark must not be negative.
func encodeProbe(mark int64) []byte {
	return binary.AppendUvarint([]byte{wireVersion, 0}, uint64(mark))
}

// decodeProbe returns the mark of a probe; ok is false for any other message.
func decodeProbe(msg string) (mark int64, ok bool) {
	if len(msg) < 2 || msg[0] != wireVersion || msg[1] != 0 {
		return 0, false
	}
	r := reader{rest: msg[2:]}
	mark = r.id()
	return mark, !r.bad && r.rest == ""
}

// decode decodes a message that is not a probe, and appends its recipients to users. Any
// input is safe; the length of the input bounds the memory used.
func decode(msg string, users []int64) (Event, []int64, error) {
	if len(msg) < 2 || msg[0] != wireVersion {
		return Event{}, users, errMalformed
	}
	r := reader{rest: msg[2:]}
	ev := Event{Kind: Kind(msg[1]), Post: r.id(), Author: r.id(), Session: r.id()}
	ev.Reason = r.text()
	count := r.id()
	// Each recipient takes at least one byte, so a count above the remaining length is invalid.
	if r.bad || ev.validate() != nil || count < 1 || count > int64(len(r.rest)) {
		return Event{}, users, errMalformed
	}
	var last int64
	for range count {
		step := r.id()
		if r.bad || step < 1 || step > math.MaxInt64-last {
			return Event{}, users, errMalformed
		}
		last += step
		users = append(users, last)
	}
	if r.rest != "" {
		return Event{}, users, errMalformed
	}
	return ev, users, nil
}

// reader decodes the fields of a message. After the first error it is bad and
// returns zeros.
type reader struct {
	rest string
	bad  bool
}

// id reads a value in 0..2^63-1, encoded as the shortest uvarint.
func (r *reader) id() int64 {
	var v uint64
	for i := 0; i < len(r.rest) && i < 9; i++ { // 9 × 7 bits = 63
		c := r.rest[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break // padded
			}
			r.rest = r.rest[i+1:]
			return int64(v)
		}
	}
	r.rest, r.bad = "", true
	return 0
}

// text reads a length and that many bytes.
func (r *reader) text() string {
	n := r.id()
	if n > int64(len(r.rest)) {
		r.rest, r.bad = "", true
		return ""
	}
	s := strings.Clone(r.rest[:n]) // an event in a buffer must not keep the message in memory
	r.rest = r.rest[n:]
	return s
}

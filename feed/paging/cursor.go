package paging

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strings"

	"tideline/feed/refusal"
)

// A Cursor is the position of an entry in one list.
//
// As text it has a version and the list, then the entry's score and id, then a
// checksum that binds them to the list's owner. The checksum is no secret: a cursor
// grants nothing, because everything that is read with one passes the same checks.
// It turns a damaged, foreign or made-up cursor into an error instead of an
// arbitrary page.
type Cursor struct {
	Score float64
	ID    int64
	// Tail is what a timeline's cursor also carries: the client state, or the posts
	// that were shown in another order. At most 16 KiB.
	Tail string
}

// List names the list that a cursor may be used with; it is part of every cursor.
type List byte

// The lists that have cursors.
const (
	Latest List = iota + 1
	Ranked
	Posts
	Followers
	Following
	Requests
	Users
	Keys
	Sessions
	AuditLog
	Reports
	SentRequests
	Blocked
	Muted
	Liked
)

const (
	cursorVersion = 1
	cursorSize    = 2 + 8 + 8 + 4
	// cursorTailed is the version of a cursor with a tail.
	cursorTailed = 2
	// maxTail has room for a ranked cursor that names twice the largest inbox:
	// 2,000 posts, which take 7 bytes each on average when they lie as far apart as
	// ids can.
	maxTail = 16 << 10
)

// cursorEncoding rejects stray trailing bits, so that a cursor has one spelling.
var cursorEncoding = base64.RawURLEncoding.Strict()

// Encode returns the text of the cursor, for the list of that owner.
func (c Cursor) Encode(l List, owner int64) string {
	return string(c.AppendEncode(nil, l, owner, nil))
}

// AppendEncode appends the text of the cursor to b. If the ending is not nil, the cursor's
// tail is Tail and then the ending.
func (c Cursor) AppendEncode(b []byte, l List, owner int64, end *Ending) []byte {
	version, ends := byte(cursorVersion), 0
	if c.Tail != "" || end != nil {
		version = cursorTailed
	}
	if end != nil {
		ends = len(end.raw)
	}
	// What is encoded lies in the same array, behind the room for the text: the checksum
	// would have an array of its own escape to the heap.
	size := cursorSize + len(c.Tail)
	room := cursorEncoding.EncodedLen(size + ends)
	b = slices.Grow(b, room+size+8)
	raw := b[len(b)+room : len(b)+room]
	raw = append(raw, version, byte(l))
	raw = binary.BigEndian.AppendUint64(raw, math.Float64bits(c.Score))
	raw = binary.BigEndian.AppendUint64(raw, uint64(c.ID))
	raw = append(raw, c.Tail...)
	sum := crc32.ChecksumIEEE(raw)
	if end != nil {
		sum = crc32.Update(sum, crc32.IEEETable, end.raw)
	}
	n := len(raw)
	raw = binary.BigEndian.AppendUint64(raw, uint64(owner))
	sum, raw = crc32.Update(sum, crc32.IEEETable, raw[n:]), raw[:n]
	if end != nil {
		begun := (group - n%group) % group // bytes of the ending that the group of the raw ones before it lacks
		b = cursorEncoding.AppendEncode(b, append(raw, end.raw[:begun]...))
		b = append(b, end.text[begun]...)
		raw = append(raw[:0], end.raw[begun+(ends-begun)/group*group:]...)
	}
	return cursorEncoding.AppendEncode(b, binary.BigEndian.AppendUint32(raw, sum))
}

// group is how many bytes Base64 turns into four characters.
const group = 3

// Ending is the end of the tail of many cursors. It is encoded once for all of them.
type Ending struct {
	raw  []byte
	text [group]string // of the whole groups, by the number of bytes before the first of them
}

// NewEnding returns an ending of those bytes, of which there are at least two.
func NewEnding(raw []byte) *Ending {
	e := &Ending{raw: raw}
	for begun := range e.text {
		e.text[begun] = cursorEncoding.EncodeToString(raw[begun : begun+(len(raw)-begun)/group*group])
	}
	return e
}

// checksum binds the bytes of a cursor to the owner.
func checksum(b []byte, owner int64) uint32 {
	var of [8]byte
	binary.BigEndian.PutUint64(of[:], uint64(owner))
	return crc32.Update(crc32.ChecksumIEEE(b), crc32.IEEETable, of[:])
}

// Decode reads a cursor of the list of that owner. Error: BadInput for any other
// text.
func Decode(s string, l List, owner int64) (Cursor, error) {
	b, err := cursorEncoding.DecodeString(s)
	// The decoder skips line breaks, but they are no part of the spelling.
	if err != nil || strings.ContainsAny(s, "\r\n") || len(b) < cursorSize || len(b) > cursorSize+maxTail ||
		b[0] != cursorVersion && b[0] != cursorTailed || (b[0] == cursorVersion) != (len(b) == cursorSize) {
		return Cursor{}, ErrNotACursor
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if List(body[1]) != l || checksum(body, owner) != sum {
		return Cursor{}, refusal.New(refusal.NotACursor, "That cursor belongs to another list.")
	}
	return Cursor{
		Score: math.Float64frombits(binary.BigEndian.Uint64(body[2:])),
		ID:    int64(binary.BigEndian.Uint64(body[10:])),
		Tail:  string(body[cursorSize-4:]),
	}, nil
}

// ErrNotACursor refuses a text that no server of this version made.
var ErrNotACursor error = refusal.New(refusal.NotACursor, "That is not a cursor of this server.")

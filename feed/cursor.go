package feed

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
)

// A cursor is the place of an entry in one list: version and list, then the
// entry's score and id, then a checksum that binds them to the list's owner.
// The checksum is no secret: a cursor grants nothing, everything read with one
// passes the same checks. It makes a damaged, foreign or made-up cursor an
// error instead of a page from nowhere.
type cursor struct {
	score float64
	id    int64
	// tail is what a timeline's cursor carries beside: what its client holds, or
	// has been shown in another order.
	tail string
}

// list names what a cursor may be used with; it is part of every cursor.
type list byte

const (
	listLatest list = iota + 1
	listRanked
	listPosts
	listFollowers
	listFollowing
	listRequests
	listUsers
)

const (
	cursorVersion = 1
	cursorSize    = 2 + 8 + 8 + 4
	// cursorTailed is the version of a cursor with a tail.
	cursorTailed = 2
	// maxTail has room for a passage of twice the largest inbox: 2,000 posts, which
	// take 7 bytes each on average when they lie as far apart as ids can.
	maxTail = 16 << 10
)

// cursorEncoding rejects stray trailing bits, so that a cursor has one spelling.
var cursorEncoding = base64.RawURLEncoding.Strict()

func (c cursor) encode(l list, owner int64) string {
	b := make([]byte, 0, cursorSize+len(c.tail))
	version := byte(cursorVersion)
	if c.tail != "" {
		version = cursorTailed
	}
	b = append(b, version, byte(l))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(c.score))
	b = binary.BigEndian.AppendUint64(b, uint64(c.id))
	b = append(b, c.tail...)
	b = binary.BigEndian.AppendUint32(b, cursorSum(b, owner))
	return cursorEncoding.EncodeToString(b)
}

func cursorSum(b []byte, owner int64) uint32 {
	return crc32.ChecksumIEEE(binary.BigEndian.AppendUint64(b[:len(b):len(b)], uint64(owner)))
}

func decodeCursor(s string, l list, owner int64) (cursor, error) {
	b, err := cursorEncoding.DecodeString(s)
	// Line breaks are no part of the spelling, though the decoder skips them.
	if err != nil || strings.ContainsAny(s, "\r\n") || len(b) < cursorSize || len(b) > cursorSize+maxTail ||
		b[0] != cursorVersion && b[0] != cursorTailed || (b[0] == cursorVersion) != (len(b) == cursorSize) {
		return cursor{}, refuse(BadInput, "That is not a cursor of this server.")
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if list(body[1]) != l || cursorSum(body, owner) != sum {
		return cursor{}, refuse(BadInput, "That cursor belongs to another list.")
	}
	return cursor{
		score: math.Float64frombits(binary.BigEndian.Uint64(body[2:])),
		id:    int64(binary.BigEndian.Uint64(body[10:])),
		tail:  string(body[cursorSize-4:]),
	}, nil
}

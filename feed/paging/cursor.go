package paging

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"sync"

	"tideline/feed/refusal"
)

// A Cursor is the position of an entry in a list.
//
// Its text holds a version and the list, the entry's score and id, and a checksum that binds them
// to the list's owner. The checksum is not secret: a cursor grants nothing, because everything that
// is read with it passes the same checks. The checksum turns a damaged, foreign or invented cursor
// into an error instead of an arbitrary page.
type Cursor struct {
	Score float64
	ID    int64
	// Tail is additional data in a timeline's cursor: the client state, or the posts that were
	// shown in another order. At most 16 KiB.
	Tail string
}

// List identifies the list that a cursor belongs to. It is part of every cursor.
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
	Versions
	// RankedBy is a timeline ordered by a ranking, whose name is in the cursor's tail.
	RankedBy
	// Tagged is the list of a tag. Its owner is the tag's hash.
	Tagged
	// The lists of a post: its direct replies in either order or by likes, all replies of its
	// conversation, its reposts and its quotes.
	Replies
	NewestReplies
	TopReplies
	Conversation
	Reposts
	Quotes
	// ConversationEvents is the list of changes of a conversation. Its owner is the viewer.
	ConversationEvents
	// Public is the list of the newest public posts.
	Public
	MutedConversations
	Suspensions
)

const (
	cursorVersion = 1
	cursorSize    = 2 + 8 + 8 + 4
	// cursorTailed is the version of a cursor with a tail.
	cursorTailed = 2
	// maxTail has room for a ranked cursor with the name of its ranking and twice the largest
	// inbox: 2,000 posts, which take 7 bytes each on average if they lie as far apart as ids can.
	maxTail = 16 << 10
)

// cursorEncoding rejects stray trailing bits, so that a cursor has one spelling.
var cursorEncoding = base64.RawURLEncoding.Strict()

// Encode returns the text of the cursor, for the list l of the owner.
func (c Cursor) Encode(l List, owner int64) string {
	tail := func(b []byte) []byte { return append(b, c.Tail...) }
	return string(c.Append(make([]byte, 0, 1024), l, owner, tail)) // room for most cursors, on the stack
}

// raws holds buffers for cursors before they are encoded. Each live delivery needs one.
var raws = sync.Pool{New: func() any { return new([]byte) }}

// Append appends the text of a cursor, like Encode. The cursor's Tail is the data that tail
// appends. It allocates only if text must grow.
func (c Cursor) Append(text []byte, l List, owner int64, tail func(b []byte) []byte) []byte {
	raw := raws.Get().(*[]byte)
	defer raws.Put(raw)
	b := append((*raw)[:0], cursorVersion, byte(l))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(c.Score))
	b = binary.BigEndian.AppendUint64(b, uint64(c.ID))
	if b = tail(b); len(b) > cursorSize-4 {
		b[0] = cursorTailed
	}
	b = binary.BigEndian.AppendUint32(b, checksum(b, owner))
	*raw = b
	return cursorEncoding.AppendEncode(text, b)
}

// checksum may write behind the end of b.
func checksum(b []byte, owner int64) uint32 {
	return crc32.ChecksumIEEE(binary.BigEndian.AppendUint64(b, uint64(owner)))
}

// Decode parses a cursor for the list l of the owner. Error: BadInput, for any other text.
func Decode(s string, l List, owner int64) (Cursor, error) {
	b, err := cursorEncoding.DecodeString(s)
	// The decoder skips line breaks, but they are not part of the spelling.
	if err != nil || strings.ContainsAny(s, "\r\n") || len(b) < cursorSize || len(b) > cursorSize+maxTail ||
		b[0] != cursorVersion && b[0] != cursorTailed || (b[0] == cursorVersion) != (len(b) == cursorSize) {
		return Cursor{}, ErrNotACursor
	}
	body, sum := slices.Clip(b[:len(b)-4]), binary.BigEndian.Uint32(b[len(b)-4:])
	if List(body[1]) != l || checksum(body, owner) != sum {
		return Cursor{}, ErrOtherList
	}
	return Cursor{
		Score: math.Float64frombits(binary.BigEndian.Uint64(body[2:])),
		ID:    int64(binary.BigEndian.Uint64(body[10:])),
		Tail:  string(body[cursorSize-4:]),
	}, nil
}

// ErrOtherList refuses a cursor that was made for another list, or another user.
var ErrOtherList error = refusal.New(refusal.NotACursor, "That cursor belongs to another list.")

// ErrNotACursor refuses a text that no server of this version made.
var ErrNotACursor error = refusal.New(refusal.NotACursor, "That is not a cursor of this server.")

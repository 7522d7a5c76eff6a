package timeline

import (
	"fmt"
	"strconv"
	"strings"
)

// This file has the keys, except activeKey, and the encoding of ids.
//
//	tl:{i<user>}:z    inbox: sorted set, member = post id, score = -post id
//	tl:{i<user>}:m    its coverage and journal: hash, see lua/feed.lua
//	tl:{i<user>}:t<n> exists while Redis remembers that the user was told about
//	                  change n
//	tl:{o<author>}:z  outbox: as the inbox
//	tl:{o<author>}:m  its coverage, without a journal
//	tl:{o<author>}:f  fences: sorted set, member = viewer, or "w", the job of the
//	                  fan-out that watches them, ":" and the incarnation;
//	                  score = Unix seconds
//	tl:{c<root>}:r    changes of the posts of a watched conversation: hash, see
//	                  lua/watch.lua
//	tl:{i<user>}:r    changes of the relations of a user who watches: as above
//	tl:{a<shard>}     active users: sorted set, member = user id,
//	                  score = deadline in Unix milliseconds; see activeKey
//	tl:{n<shard>}     latest posts: hash, field = author; see latest.go
//
// The hash tag keeps all keys of one feed in one slot of a cluster.

type kind byte

const (
	inbox  kind = 'i'
	outbox kind = 'o'
)

// Key identifies a feed. The zero value identifies none.
type Key struct {
	kind kind
	id   int64
}

// Inbox returns the key of the user's inbox, the feed of posts that reach the user.
func Inbox(user int64) Key { return Key{inbox, user} }

// Outbox returns the key of the author's outbox, the feed of the author's own posts.
func Outbox(author int64) Key { return Key{outbox, author} }

// String returns the common prefix of the feed's keys in Redis, for logs and errors.
func (k Key) String() string { return string(k.tagged(make([]byte, 0, 32))) }

func (k Key) tagged(b []byte) []byte {
	b = append(b, "tl:{"...)
	b = append(b, byte(k.kind))
	b = strconv.AppendInt(b, k.id, 10)
	return append(b, '}')
}

func (k Key) part(suffix string) string {
	return string(append(k.tagged(make([]byte, 0, 32)), suffix...))
}

func (k Key) set() string    { return k.part(":z") }
func (k Key) meta() string   { return k.part(":m") }
func (k Key) fences() string { return k.part(":f") }

func (k Key) told(change int64) string { return k.part(":t" + formatID(change)) }

// keys returns the KEYS of every script on a feed.
func (k Key) keys() []string { return []string{k.meta(), k.set()} }

// KindOf returns what a key holds, as one of the constants below. It returns "" for a key of
// another package, and for the record of changes that a user was told about.
func KindOf(key string) string {
	tag, found := strings.CutPrefix(key, "tl:{")
	if !found || tag == "" {
		return ""
	}
	_, part, _ := strings.Cut(tag, "}")
	switch string(tag[0]) + part {
	case "i:z":
		return KindInbox
	case "i:m":
		return KindJournal
	case "o:z":
		return KindOutbox
	case "o:m":
		return KindCoverage
	case "o:f":
		return KindFences
	case "c:r":
		return KindConversation
	case "i:r":
		return KindRelations
	case "a":
		return KindActive
	case "n":
		return KindLatest
	}
	return ""
}

// The results of KindOf. The journal of an inbox is in the key of its coverage.
const (
	KindInbox    = "inbox"
	KindJournal  = "journal"
	KindOutbox   = "outbox"
	KindCoverage = "coverage"
	KindFences   = "fences"
	KindActive   = "active users"
	KindLatest   = "latest posts"

	KindConversation = "conversation changes"
	KindRelations    = "relation changes"
)

func latestKey(shard int) string { return "tl:{n" + strconv.Itoa(shard) + "}" }

// idMax is the largest id that is exact as the score of a sorted set.
const idMax = 1<<53 - 1

func checkIDs(ids ...int64) error {
	for _, id := range ids {
		if id < 1 || id > idMax {
			return fmt.Errorf("post id %d is not within 1 to %d", id, int64(idMax))
		}
	}
	return nil
}

func formatID(id int64) string { return strconv.FormatInt(id, 10) }

// appendIDs appends ids to the arguments of a script, always as text: a Lua number loses digits
// when it is converted back to text.
func appendIDs(args []any, ids []int64) []any {
	for _, id := range ids {
		args = append(args, formatID(id))
	}
	return args
}

func parseID(v any) (int64, error) {
	text, ok := v.(string)
	if !ok {
		return 0, fmt.Errorf("redis answered %T for an id", v)
	}
	return strconv.ParseInt(text, 10, 64)
}

// Slots is the number of slots of a cluster.
const Slots = 1 << 14

// InboxSlot returns the cluster slot of the user's inbox.
func InboxSlot(user int64) int {
	tag := string(inbox) + formatID(user)
	crc := uint16(0) // CRC-16/XMODEM, as specified by Redis Cluster
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if carry := crc & 0x8000; carry != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}

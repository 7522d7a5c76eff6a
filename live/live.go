// Package live carries events over Redis pub/sub from publishers to the
// subscriptions that are open in any process.
//
// It hides how a recipient is found: which process holds which users, the
// channel of each process, and the wire format. It knows user ids, post ids
// and kinds of event. It does not know their meaning, or who may see which
// post.
//
// A recipient is a user, who receives the events of the home timeline, or one
// of the other things that a client watches: see [Conversation] and
// [Relations]. Where this package speaks of users, it means all recipients.
//
// # What is in Redis
//
//	live:procs         sorted set: process -> last heartbeat (the server's clock, ms)
//	live:{pNAME}:users set: the users that the process holds, and 0 for the
//	                   process itself; expires when its heartbeats stop
//	live:{pNAME}       the channel of the process
//
// A publisher looks up in Redis which recipients each process holds. It sends
// one message to each process that holds any; the message names exactly these
// recipients. A publication costs one set look-up per recipient and process.
// Publishers no longer address a process whose last heartbeat is older than
// [HubConfig.Heartbeat] × 4.
//
// # What is promised
//
// Redis pub/sub delivers at most once, so an event is a hint and never the
// truth. But the hub loses no event silently. After [Hub.Subscribe] has
// returned, a subscription receives every event that is published to its
// user, or it receives a [Resync] after the loss and must read the truth
// itself, or it is closed with an error:
//
//   - The connection to Redis breaks, or is silent (a probe that the hub sends
//     through it every third of [HubConfig.Silence] does not come back): the hub
//     connects again, registers the users again, then sends Resync to all.
//   - Redis is wiped, or presence expires in a long pause of the process: the
//     next heartbeat notices, restores presence, then sends Resync to all.
//   - A message cannot be read (another version): the next heartbeat sends
//     Resync to all.
//   - A subscriber does not drain its buffer: it is closed with [ErrLagged]. The
//     hub never waits for it.
//   - The hub stops: every subscription is closed with [ErrClosed].
//
// [Subscription.Covered] tells a subscriber up to when nothing was lost.
//
// Events of one author to one user that one publisher publishes one after the
// other arrive in that order. While a process notifies many subscriptions of an
// event, the author's next events wait; events of other authors, and without an
// author, do not. An event may arrive twice (a publisher that tries again), and
// may arrive after a Resync that covers it.
package live

import (
	"errors"
	"fmt"
)

// ErrLagged ends a subscription whose reader is too slow.
var ErrLagged = errors.New("live: subscriber too slow")

// ErrClosed ends every subscription of a hub that stops.
var ErrClosed = errors.New("live: hub is stopped")

// Recipients other than users are numbers that no id has: ids have 53 bits.
const (
	relations     = 1 << 61
	conversations = 1 << 62
)

// Conversation returns the recipient of the events of a conversation. root is the id of its first post.
func Conversation(root int64) int64 { return conversations | root }

// Relations returns the recipient of the events that say that a relation between the user and another
// user may have changed.
func Relations(user int64) int64 { return relations | user }

// maxReason bounds Event.Reason in bytes, so that the number of recipients bounds a message.
const maxReason = 256

// Edited is the Reason of an Added event for a post whose text changed, and which the timeline
// may already have. It is not a separate Kind, for compatibility: an older process drops the event
// if its client has the post, as it does with every Added event.
const Edited = "edited"

// BaseChanged is the Reason of an Added event for a reply or a repost whose root or original was
// shown, hidden or deleted, and which the timeline usually has already.
const BaseChanged = "base"

// Kind is the kind of an event. The numbers are part of the wire format: append only.
type Kind uint8

const (
	// Added says that a post became visible in the timeline.
	Added Kind = iota + 1
	// Removed says that a post left the timeline.
	Removed
	// Invalidated says that the timeline changed in several places.
	Invalidated
	// SessionEnded says that a session of the user Author was revoked. With Session 0, several
	// sessions ended, and SQL says which.
	SessionEnded
	// MarkerMoved says that the user's read marker moved, or that the requests to follow the
	// user changed. Each stream of the user then sends a heartbeat.
	MarkerMoved
	// JournalChanged says that the journal of the timeline may have new entries.
	JournalChanged
	// ConversationChanged says that a post of a conversation was added, changed or removed. The
	// Reason has the change and its position in the record of the conversation.
	ConversationChanged
	// Resync says that events may have been lost. Only the hub creates it; it cannot be
	// published.
	Resync Kind = 255
)

// String returns the name of the kind for logs.
func (k Kind) String() string {
	switch k {
	case Added:
		return "added"
	case Removed:
		return "removed"
	case Invalidated:
		return "invalidated"
	case SessionEnded:
		return "session-ended"
	case MarkerMoved:
		return "marker-moved"
	case JournalChanged:
		return "journal-changed"
	case ConversationChanged:
		return "conversation-changed"
	case Resync:
		return "resync"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is a message to subscribers. The kind decides which ids are set, and
// publisher and subscriber agree on that. Zero means absent; negative ids cannot
// be published.
type Event struct {
	Kind    Kind
	Post    int64
	Author  int64
	Session int64
	// Reason has at most 256 bytes. It is Edited, BaseChanged or empty in an Added event, and empty in a
	// Removed event. On the wire, in these two kinds, the trace of the publication follows
	// after a space (trace.Carried).
	Reason string

	// Batch names all recipients of the message in this process. It is nil in an
	// event to publish, and in a Resync.
	Batch *Batch
}

// carries reports whether a trace may follow the reason. Older versions ignore the reason of these
// kinds.
func (e Event) carries() bool { return e.Kind == Added || e.Kind == Removed }

// validate returns an error for an event that the wire format cannot carry.
func (e Event) validate() error {
	switch {
	case e.Kind < Added || e.Kind > ConversationChanged:
		return fmt.Errorf("an event of %v cannot be published", e.Kind)
	case e.Post < 0 || e.Author < 0 || e.Session < 0:
		return errors.New("an event has a negative id")
	case len(e.Reason) > maxReason:
		return fmt.Errorf("a reason has %d bytes, at most %d are allowed", len(e.Reason), maxReason)
	}
	return nil
}

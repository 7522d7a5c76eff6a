// Package live carries events from whoever publishes them to the subscribers
// that some process holds open, over Redis pub/sub.
//
// It hides how a recipient is found: which process holds which users, the
// channel of each process, and the bytes on it. It knows user ids, post ids
// and kinds of event; what they mean, and who may see what, is not its
// business.
//
// # What is in Redis
//
//	live:procs         sorted set: process -> last heartbeat (the server's clock, ms)
//	live:{pNAME}:users set: the users that the process holds, and 0 for the
//	                   process itself; expires when its heartbeats stop
//	live:{pNAME}       the channel of the process
//
// A publisher asks every process which of the recipients it holds and sends
// one message to each process that holds any, naming exactly those. The cost
// of a publication is one set look-up per recipient and process, and grows
// with the number of processes only there. A dead process is no longer
// addressed once its heartbeats are [HubConfig.Heartbeat] × 4 old.
//
// # What is promised
//
// Redis pub/sub delivers at most once, so an event is a hint and never the
// truth. What the hub promises instead is that nothing is lost in silence. A
// subscription either gets every event that was published to its user after
// [Hub.Subscribe] returned, or it gets a [Resync] after the loss and has to
// look at the truth itself, or it is closed with a reason:
//
//   - The connection to Redis broke, or went silent (a probe sent through it
//     every third of [HubConfig.Silence] did not come back): connect again,
//     register the users again, then Resync to all.
//   - Redis was wiped, or presence expired in a long pause of the process: the
//     next heartbeat notices, restores presence, then Resync to all.
//   - A message that cannot be read (another version): Resync to all.
//   - A subscriber that does not drain its buffer: closed with [ErrLagged]. No
//     one ever waits for it.
//   - The hub stopped: closed with [ErrClosed].
//
// A subscriber can also ask up to when nothing was lost: [Subscription.Covered].
//
// Events of one author to one user, published one after the other by one publisher,
// arrive in that order. While many subscriptions of a process are told of one, the
// author's next events wait for it; those of other authors, and of none, do not. An
// event may arrive twice (a publisher that tries again), and after a Resync that covers
// it.
package live

import (
	"errors"
	"fmt"
)

// ErrLagged is the end of a subscription whose reader did not keep up.
var ErrLagged = errors.New("live: subscriber too slow")

// ErrClosed is the end of every subscription of a hub that stopped.
var ErrClosed = errors.New("live: hub is stopped")

// maxReason bounds Event.Reason, so that a message is bounded by its recipients.
const maxReason = 256

// Edited is the Reason of an Added of a post that may be there already, and says something
// else than before. It is no Kind of its own: a process that does not know it drops the event,
// as it drops every Added of a post that its client has.
const Edited = "edited"

// Kind is what happened. The numbers are part of the wire format: append only.
type Kind uint8

const (
	// Added says that a post became visible in the timeline.
	Added Kind = iota + 1
	// Removed says that a post left the timeline.
	Removed
	// Invalidated says that the timeline changed in more places than one.
	Invalidated
	// SessionEnded says that a session of the user was revoked or expired. With Session 0,
	// several of the user Author were: SQL says which.
	SessionEnded
	// MarkerMoved says that the user read up to somewhere, or that the requests to follow the
	// user changed: each stream of the user sends a heartbeat.
	MarkerMoved
	// JournalChanged says that the journal of the timeline may have new entries.
	JournalChanged
	// Resync says that events may have been lost. It is made by the hub itself
	// and cannot be published.
	Resync Kind = 255
)

// String is the name of the kind, for logs.
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
	case Resync:
		return "resync"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Event is what subscribers are told. Which of the ids are set depends on the
// kind and is between publisher and subscriber; zero means absent, negative
// ids cannot be published.
type Event struct {
	Kind    Kind
	Post    int64
	Author  int64
	Session int64
	// Reason has at most 256 bytes. In an Added it is Edited or empty, in a Removed empty. On
	// the wire the journey of the publication follows behind a space in those two, see
	// trace.Carried.
	Reason string

	// Batch has all recipients of the message in this process. It is nil in a
	// published event, and in a Resync.
	Batch *Batch
}

// carries reports whether a journey may follow the reason: versions before this one ignore
// both.
func (e Event) carries() bool { return e.Kind == Added || e.Kind == Removed }

// validate refuses what the wire format cannot carry.
func (e Event) validate() error {
	switch {
	case e.Kind < Added || e.Kind > JournalChanged:
		return fmt.Errorf("an event of %v cannot be published", e.Kind)
	case e.Post < 0 || e.Author < 0 || e.Session < 0:
		return errors.New("an event has a negative id")
	case len(e.Reason) > maxReason:
		return fmt.Errorf("a reason has %d bytes, at most %d are allowed", len(e.Reason), maxReason)
	}
	return nil
}

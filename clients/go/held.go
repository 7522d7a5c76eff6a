package tideline

import (
	"encoding/json"
	"slices"
)

// Entry is an entry of a timeline. P is what is selected of its post.
type Entry[P any] struct {
	// Cursor is the entry's place, for calls that take one.
	Cursor string
	// Score orders the timeline, highest first.
	Score float64
	// ID is the post's, AuthorID its author's.
	ID, AuthorID string
	Post         P
}

// edge is an entry as the API gives it.
type edge[P any] Entry[P]

// UnmarshalJSON decodes an edge whose node has at least an id and its author's.
func (e *edge[P]) UnmarshalJSON(raw []byte) error {
	var as struct {
		Cursor string
		Score  float64
		Node   json.RawMessage
	}
	var node struct {
		ID     string
		Author struct{ ID string }
	}
	if err := json.Unmarshal(raw, &as); err != nil {
		return err
	}
	if err := json.Unmarshal(as.Node, &node); err != nil {
		return err
	}
	*e = edge[P]{Cursor: as.Cursor, Score: as.Score, ID: node.ID, AuthorID: node.Author.ID}
	return json.Unmarshal(as.Node, &e.Post)
}

// page is one or more pages that were read one after the other.
type page[P any] struct {
	entries  []Entry[P]
	next     string // the cursor after which the next one begins; "": there is none
	position string // that of the first
	unread   int
}

// The kinds of events.
const (
	PostAdded   = "TimelinePostAdded"
	PostUpdated = "TimelinePostUpdated"
	PostRemoved = "TimelinePostRemoved"
	Invalidated = "TimelineInvalidated"
	Heartbeat   = "TimelineHeartbeat"
)

// Event is what happened to a timeline.
type Event[P any] struct {
	// Kind is one of those above, or one of a later server, which changes nothing.
	Kind string
	// Entry is that of a PostAdded or PostUpdated, with its ID alone of a PostRemoved.
	Entry Entry[P]
	// Reason of a PostRemoved is DELETED, of a post of the viewer's own, or NOT_VISIBLE;
	// that of an Invalidated is for the log.
	Reason string

	position       string
	unread, lateBy int
}

// Saved is a timeline to be taken up later by another program: see Timeline.Save. It
// can be encoded as JSON if its posts can.
type Saved[P any] struct {
	Viewer   string
	Entries  []Entry[P]
	Next     string  // the cursor after which the next older page begins; "": there is none
	End      float64 // the score down to which it was read
	Position string  // where its subscription resumes
	Unread   int
}

// held is what a client holds of a timeline, a function of what it was told. Nothing
// here reads or waits.
type held[P any] struct {
	Saved[P]
	loaded bool // a first page was read
	stale  bool // it must be read again: what is told has gaps
	bound  int  // how many entries stay when one comes
	lateBy int  // seconds, as the last heartbeat says
}

// foreign reports whether an entry is another user's: those alone are unread.
func (h *held[P]) foreign(e Entry[P]) bool { return e.AuthorID != h.Viewer }

// newer returns how many entries of others are above a score.
func (h *held[P]) newer(score float64) (n int) {
	for _, e := range h.Entries {
		if e.Score <= score {
			break
		}
		if h.foreign(e) {
			n++
		}
	}
	return n
}

func (h *held[P]) index(id string) int {
	return slices.IndexFunc(h.Entries, func(e Entry[P]) bool { return e.ID == id })
}

// land puts the first pages in the place of all that was held.
func (h *held[P]) land(p page[P], viewer string, bound int) {
	h.Saved = Saved[P]{Viewer: viewer, Entries: p.entries, Position: p.position, Unread: p.unread}
	h.loaded, h.stale, h.bound = true, false, max(bound, len(p.entries))
	h.ends(p)
}

// landOlder adds the page after the oldest entry.
func (h *held[P]) landOlder(p page[P]) {
	h.Entries = slices.Clone(h.Entries)
	for _, e := range p.entries {
		if h.index(e.ID) < 0 {
			h.Entries = append(h.Entries, e)
		}
	}
	h.bound = max(h.bound, len(h.Entries))
	h.ends(p)
}

// ends notes how far down the timeline was read.
func (h *held[P]) ends(p page[P]) {
	h.Next = p.next
	if len(p.entries) > 0 {
		h.End = p.entries[len(p.entries)-1].Score
	}
}

// apply makes what is held agree with an event. Entries become a new slice, for the
// old one is shown to somebody.
func (h *held[P]) apply(e Event[P]) {
	switch e.Kind {
	case Invalidated:
		h.stale = true // and the position without use
	case PostAdded:
		if h.index(e.Entry.ID) < 0 && h.foreign(e.Entry) && h.reaches(e.Entry) && h.newer(e.Entry.Score) <= h.Unread {
			h.Unread++
		}
		h.put(e.Entry)
	case PostUpdated:
		h.put(e.Entry)
	case PostRemoved:
		h.remove(e.Entry.ID)
	case Heartbeat:
		h.Unread, h.lateBy = e.unread, e.lateBy
	}
	h.Position = e.position
}

// reaches reports whether an entry belongs to what was read. What is older comes with
// the next page.
func (h *held[P]) reaches(e Entry[P]) bool { return h.Next == "" || e.Score >= h.End }

// put has an entry take the place of that of the same post, or its place by score.
func (h *held[P]) put(e Entry[P]) {
	at := h.index(e.ID)
	if at < 0 && !h.reaches(e) {
		return
	}
	entries := slices.Clone(h.Entries)
	if at >= 0 && entries[at].Score == e.Score {
		entries[at] = e
		h.Entries = entries
		return
	}
	if at >= 0 {
		entries = slices.Delete(entries, at, at+1)
	}
	at = slices.IndexFunc(entries, func(other Entry[P]) bool { return other.Score <= e.Score })
	if at < 0 {
		at = len(entries)
	}
	entries = slices.Insert(entries, at, e)
	if len(entries) > h.bound {
		entries = entries[:h.bound]
		oldest := entries[h.bound-1]
		h.Next, h.End = oldest.Cursor, oldest.Score
	}
	h.Entries = entries
}

func (h *held[P]) remove(id string) {
	at := h.index(id)
	if at < 0 {
		return
	}
	if e := h.Entries[at]; h.foreign(e) && h.newer(e.Score) < h.Unread {
		h.Unread--
	}
	h.Entries = slices.Delete(slices.Clone(h.Entries), at, at+1)
}

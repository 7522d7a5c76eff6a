package tideline

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// Entry is an entry of a timeline, or a post of a conversation. P has the selected fields of its post.
type Entry[P any] struct {
	// Cursor is the entry's position, for calls that take a cursor. It is empty for a post of a conversation
	// that came by event.
	Cursor string
	// Score orders the list, highest first, unless the server orders it: as replies by Top.
	Score float64
	// ID is the post's id, AuthorID its author's.
	ID, AuthorID string
	Post         P
}

// edge decodes an entry of the API.
type edge[P any] Entry[P]

// UnmarshalJSON decodes an edge. The query must select id and author { id } of the node.
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

// page is one page, or several consecutive pages together.
type page[P any] struct {
	entries  []Entry[P]
	next     string // cursor of the next page; "" if there is none
	position string // position of the first page
	unread   int
}

// Kinds of events.
const (
	PostAdded   = "TimelinePostAdded"
	PostUpdated = "TimelinePostUpdated"
	PostRemoved = "TimelinePostRemoved"
	Invalidated = "TimelineInvalidated"
	Heartbeat   = "TimelineHeartbeat"
)

// Event is a change of a timeline.
type Event[P any] struct {
	// Kind is one of the constants above. A later server may send other kinds, which change nothing.
	Kind string
	// Entry is the entry of a PostAdded or PostUpdated. For a PostRemoved it has only the ID.
	Entry Entry[P]
	// Reason is DELETED or NOT_VISIBLE for a PostRemoved; only the viewer's own posts are DELETED. For an
	// Invalidated it is a text for the log.
	Reason string

	position       string
	unread, lateBy int
}

// Saved is the state of a timeline that another program can continue; see Timeline.Save. It can be
// encoded as JSON if its posts can.
type Saved[P any] struct {
	Viewer   string
	Entries  []Entry[P]
	Next     string  // cursor of the next older page; "" if there is none
	End      float64 // score of the oldest entry that was read and kept
	Position string  // where the subscription resumes
	Unread   int     // this many of the newest entries of other users are unread
}

// held is the client's state of a timeline, or of the replies to a post. It depends only on the pages and events
// it was given, and does no I/O.
type held[P any] struct {
	Saved[P]
	loaded bool // a first page was read
	stale  bool // it must be read again: the events have gaps
	bound  int  // an event drops the last entries beyond this number, down to one with a cursor
	lateBy int  // seconds, from the last heartbeat
	ranked bool // only the server knows the order: new entries are put first
}

// mustRead reports whether the list must be read before events make sense.
func (h *held[P]) mustRead() bool { return !h.loaded || h.stale }

// foreign reports whether an entry is another user's. Only those can be unread.
func (h *held[P]) foreign(e Entry[P]) bool { return e.AuthorID != h.Viewer }

// newer returns how many entries of others have a higher score.
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

// land replaces the whole state with one or more first pages.
func (h *held[P]) land(p page[P], viewer string, bound int) {
	h.Saved = Saved[P]{Viewer: viewer, Entries: p.entries, Position: p.position, Unread: p.unread}
	h.loaded, h.stale, h.bound = true, false, max(bound, len(p.entries))
	if len(p.entries) == 0 && p.next != "" { // of the range that was read, nothing is shown
		h.End = math.MaxFloat64
	}
	h.ends(p)
}

// landOlder appends the next older page.
func (h *held[P]) landOlder(p page[P]) {
	h.Entries = slices.Clone(h.Entries)
	for _, e := range p.entries {
		if h.index(e.ID) < 0 {
			h.Entries = append(h.Entries, e)
		}
	}
	if !h.ranked { // the user's own reply may be held already, below the page
		slices.SortStableFunc(h.Entries, func(a, b Entry[P]) int { return cmp.Compare(b.Score, a.Score) })
	}
	h.bound = max(h.bound, len(h.Entries))
	h.ends(p)
}

// ends records how far down the timeline was read.
func (h *held[P]) ends(p page[P]) {
	h.Next = p.next
	if len(p.entries) > 0 {
		h.End = p.entries[len(p.entries)-1].Score
	}
}

// apply updates the state with an event. It copies the entries, because callers may still hold the old slice.
func (h *held[P]) apply(e Event[P]) {
	switch e.Kind {
	case Invalidated:
		h.stale = true // the next read replaces the entries and the position
	case PostAdded:
		// A new entry is unread too, unless more entries are newer than are unread: one of them was read.
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

// reaches reports whether an entry is in the range that was read. Older entries come with the next page.
func (h *held[P]) reaches(e Entry[P]) bool { return h.ranked || h.Next == "" || e.Score >= h.End }

// put replaces the entry of the same post, or inserts the entry by its score if it is in the range that was
// read.
func (h *held[P]) put(e Entry[P]) {
	if h.index(e.ID) >= 0 || h.reaches(e) {
		h.show(e)
	}
}

// show replaces the entry of the same post, or inserts the entry by its score.
func (h *held[P]) show(e Entry[P]) {
	at := h.index(e.ID)
	entries := slices.Clone(h.Entries)
	if at >= 0 && (entries[at].Score == e.Score || h.ranked) {
		e.Cursor = cmp.Or(e.Cursor, entries[at].Cursor) // an event of a conversation has none
		entries[at] = e
		h.Entries = entries
		return
	}
	if at >= 0 {
		entries = slices.Delete(entries, at, at+1)
	}
	at = slices.IndexFunc(entries, func(other Entry[P]) bool { return h.ranked || other.Score <= e.Score })
	if at < 0 {
		at = len(entries)
	}
	entries = slices.Insert(entries, at, e)
	h.Entries = entries
	// The list ends with an entry that has a cursor, so that the next page can continue after it.
	for keep := h.bound; len(entries) > h.bound && keep > 0; keep-- {
		if last := entries[keep-1]; last.Cursor != "" {
			h.Entries, h.Next, h.End = entries[:keep], last.Cursor, last.Score
			break
		}
	}
}

func (h *held[P]) remove(id string) {
	at := h.index(id)
	if at < 0 {
		return
	}
	if e := h.Entries[at]; h.foreign(e) && h.newer(e.Score) < h.Unread { // it was unread
		h.Unread--
	}
	h.Entries = slices.Delete(slices.Clone(h.Entries), at, at+1)
}

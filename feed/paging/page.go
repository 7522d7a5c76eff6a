// Package paging cuts lists into pages by the Relay conventions.
//
// A list is ordered downwards. A page lies strictly between two cursors, so it does not move when
// entries are added or removed elsewhere.
package paging

import (
	"slices"

	"tideline/feed/refusal"
	"tideline/timeline"
)

const (
	// DefaultSize is the size of a page if a client gives none.
	DefaultSize = 20
	// DefaultMaxSize is the default for the maximum size of a page.
	DefaultMaxSize = 100
)

// Page asks for a part of a list, as in Relay's connections: the First entries after a cursor, or
// the Last entries before a cursor. Nil fields are not given.
type Page struct {
	First, Last   *int
	After, Before *string
}

// Window is a Page with decoded cursors: N entries strictly between two cursors of a list that is
// ordered downwards. They are taken from its upper end, or, if Backwards, from its lower end. A nil
// cursor is the end of the list.
type Window struct {
	N             int
	After, Before *Cursor
	Backwards     bool
}

// Open checks the page and decodes its cursors, which must belong to the list l of the owner. The
// page may have 1 to most entries. Error: BadInput.
func Open(p Page, l List, owner int64, most int) (Window, error) {
	w := Window{N: DefaultSize}
	size, name := p.First, "first"
	if p.Last != nil {
		if p.First != nil {
			return w, refusal.New(refusal.FirstAndLast, "Ask for first or last, not both.")
		}
		size, name, w.Backwards = p.Last, "last", true
	}
	if size != nil {
		if w.N = *size; w.N < 1 || w.N > most {
			return w, refusal.New(refusal.OutOfRange, "%s must be 1 to %d, not %d.", name, most, w.N).In(name).Beyond("pageSize", most, w.N)
		}
	} else if p.Before != nil && p.After == nil {
		w.Backwards = true
	}
	for _, end := range []struct {
		text *string
		to   **Cursor
	}{{p.After, &w.After}, {p.Before, &w.Before}} {
		if end.text == nil {
			continue
		}
		c, err := Decode(*end.text, l, owner)
		if err != nil {
			return w, err
		}
		*end.to = &c
	}
	return w, nil
}

// Range returns the window as a range of ids. It has room for one entry more than the page, which
// shows whether there are more.
func (w Window) Range() timeline.Range {
	r := timeline.Range{Ascending: w.Backwards, Limit: w.N + 1}
	if w.After != nil {
		r.Before = w.After.ID
	}
	if w.Before != nil {
		r.After = w.Before.ID
	}
	return r
}

// Connection is one page of a list, in the list's order.
type Connection[T any] struct {
	Edges                        []Edge[T]
	HasNextPage, HasPreviousPage bool
	// Position is set for a page of a home timeline and, if it was asked for, of the replies of a
	// conversation: the cursor from which a client that holds the page subscribes. It is empty for
	// other lists.
	Position string
	// End is set for a page that ended early because the entries that were looked at had nothing more for
	// the viewer. It is the cursor after which the list goes on. Start is the same for a page that was read
	// backwards: the cursor before which it goes on.
	Start, End string
}

// Edge is one entry of a page.
type Edge[T any] struct {
	Cursor string
	// Score is the value that orders the list.
	Score float64
	Node  *T
}

// Nodes returns the page's entries without their cursors.
func (c *Connection[T]) Nodes() []*T {
	nodes := make([]*T, len(c.Edges))
	for i, e := range c.Edges {
		nodes[i] = e.Node
	}
	return nodes
}

// PageInfo describes the position of a page in its list, by Relay's conventions.
type PageInfo struct {
	HasNextPage, HasPreviousPage bool
	StartCursor, EndCursor       *string // nil if the page is empty
}

// PageInfo returns the position of the page in its list.
func (c *Connection[T]) PageInfo() *PageInfo {
	p := &PageInfo{HasNextPage: c.HasNextPage, HasPreviousPage: c.HasPreviousPage}
	if n := len(c.Edges); n > 0 {
		p.StartCursor, p.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	if c.Start != "" {
		p.StartCursor = &c.Start
	}
	if c.End != "" {
		p.EndCursor = &c.End
	}
	return p
}

// Stopped says that the rows of the page end at the id, although the owner's list goes on. It changes
// nothing if the id is 0 or the page is known to have more after it.
func (c *Connection[T]) Stopped(w Window, id int64, l List, owner int64) {
	more, end := &c.HasNextPage, &c.End
	if w.Backwards {
		more, end = &c.HasPreviousPage, &c.Start
	}
	if id != 0 && !*more {
		*more, *end = true, Cursor{ID: id}.Encode(l, owner)
	}
}

// Connect returns the page of rows that were read in the window's direction. If there are more
// entries, rows has one more than the page.
func Connect[T any](w Window, rows []*T, edge func(*T) Edge[T]) *Connection[T] {
	more := len(rows) > w.N
	rows = rows[:min(len(rows), w.N)]
	if w.Backwards {
		slices.Reverse(rows)
	}
	c := &Connection[T]{Edges: make([]Edge[T], len(rows))}
	for i, row := range rows {
		c.Edges[i] = edge(row)
	}
	if w.Backwards {
		c.HasPreviousPage, c.HasNextPage = more, w.Before != nil
	} else {
		c.HasNextPage, c.HasPreviousPage = more, w.After != nil
	}
	return c
}

// ConnectBy is Connect for rows whose cursors in the list hold only an id.
func ConnectBy[T any](w Window, rows []*T, l List, owner int64, id func(*T) int64) *Connection[T] {
	return Connect(w, rows, func(row *T) Edge[T] {
		return Edge[T]{Cursor: Cursor{ID: id(row)}.Encode(l, owner), Node: row}
	})
}

// Package paging cuts lists into pages by the Relay conventions.
//
// A list is ordered downwards. A page lies strictly between two cursors, so it does
// not move while entries come and go elsewhere.
package paging

import (
	"slices"

	"tideline/feed/refusal"
	"tideline/timeline"
)

const (
	// DefaultSize is the page size of a list when a client gives none.
	DefaultSize = 20
	// DefaultMaxSize is the most entries of a page unless a setting says otherwise.
	DefaultMaxSize = 100
)

// Page asks for a part of a list, as Relay's connections do: First entries
// after a cursor, or the Last ones before one. Nil fields are not given.
type Page struct {
	First, Last   *int
	After, Before *string
}

// Window is a Page with decoded cursors: N entries strictly between two cursors of
// a list that is ordered downwards, taken from its upper end or, Backwards, from
// its lower end. A nil cursor is the end of the list.
type Window struct {
	N             int
	After, Before *Cursor
	Backwards     bool
}

// Open checks the page against its list and decodes its cursors. The page may
// have 1 to most entries. Error: BadInput.
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

// Range returns the window as a range of ids, with room for one entry more than the
// page has: that entry tells whether there are more.
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
	// Position is, of a page of a home timeline, the cursor after which a client that
	// holds the page subscribes. Other lists have none.
	Position string
	// End is the cursor behind which the list goes on, of a page that ends short of its size
	// because what was looked at had nothing more for the viewer. Other pages have none.
	End string
}

// Edge is one entry of a page.
type Edge[T any] struct {
	Cursor string
	// Score is the order of the list.
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

// PageInfo says where a page lies in its list, by Relay's conventions.
type PageInfo struct {
	HasNextPage, HasPreviousPage bool
	StartCursor, EndCursor       *string // nil: the page is empty
}

// PageInfo says where the page lies in its list.
func (c *Connection[T]) PageInfo() *PageInfo {
	p := &PageInfo{HasNextPage: c.HasNextPage, HasPreviousPage: c.HasPreviousPage}
	if n := len(c.Edges); n > 0 {
		p.StartCursor, p.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	if c.End != "" {
		p.EndCursor = &c.End
	}
	return p
}

// Connect makes a page of rows that were read in the window's direction. The rows
// have one more than the page where there are more.
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

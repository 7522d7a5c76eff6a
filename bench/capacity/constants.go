// Package capacity computes how many machines a Tideline of a given size needs. It only does arithmetic.
// Constants are the costs of operations in processor time, memory, disk and network, which "bench --model"
// measures. Assumptions describe what users do. docs/capacity.md explains the formulas.
//
// An unknown constant is never treated as zero: every figure that depends on it is unknown too.
package capacity

import (
	"fmt"
	"io"
	"math"
)

// Figure is a number, or nil if it is unknown.
type Figure *float64

// Work is processor time in µs, by the process that spends it. Worker is nil if workers run inside the
// server; Server then includes their part.
type Work struct {
	Server Figure `json:"server"`
	Worker Figure `json:"worker"`
	SQL    Figure `json:"sql"`
	Redis  Figure `json:"redis"`
}

// Each applies f to the figures of works, separately for each process. If one of the figures is unknown,
// so is the result for that process.
func Each(f func(of []float64) float64, works ...Work) Work {
	one := func(part func(Work) Figure) Figure {
		values := make([]float64, len(works))
		for i, w := range works {
			v := part(w)
			if v == nil {
				return nil
			}
			values[i] = *v
		}
		return new(f(values))
	}
	return Work{
		one(func(w Work) Figure { return w.Server }), one(func(w Work) Figure { return w.Worker }),
		one(func(w Work) Figure { return w.SQL }), one(func(w Work) Figure { return w.Redis }),
	}
}

// Constants are costs. Times are processor time in µs, except LookUp.
type Constants struct {
	Machine string   `json:"machine"`
	Unknown []string `json:"unknown"` // why figures are unknown, one sentence each

	Idle     Work `json:"idle"`     // µs per second, of one process of each kind
	Page     Work `json:"page"`     // the first 20 entries of a timeline
	Unread   Work `json:"unread"`   // the timeline's number of unread posts for a full unread inbox, if the server has cached it
	Count    Work `json:"count"`    // the same number, if the server must count
	Post     Work `json:"post"`     // createPost with its job, without pushes to others
	Reply    Work `json:"reply"`    // createPost of a reply with its job, likewise
	Repost   Work `json:"repost"`   // repost with its job, likewise
	Push     Work `json:"push"`     // a push to the inbox of one follower
	Wake     Work `json:"wake"`     // the first live delivery of a post by a server
	Delivery Work `json:"delivery"` // each further delivery by the same server
	Connect  Work `json:"connect"`  // opening a socket with a subscription
	Hold     Work `json:"hold"`     // an idle connection, per second

	LookUp Figure `json:"lookUp"` // Redis time, in µs, to look up whether a recipient is connected to a server

	Connection Figure `json:"connectionBytes"` // resident memory of an idle connection
	PageBytes  Figure `json:"pageBytes"`       // body of a page, uncompressed
	EventBytes Figure `json:"eventBytes"`      // message of an event on the socket

	// Bytes in Redis.
	InboxEntries Figure `json:"inboxEntries"` // average in the measured inboxes
	InboxEntry   Figure `json:"inboxEntryBytes"`
	InboxRest    Figure `json:"inboxRestBytes"` // coverage and journal of an inbox
	OutboxEntry  Figure `json:"outboxEntryBytes"`
	OutboxRest   Figure `json:"outboxRestBytes"` // coverage of an outbox
	Fences       Figure `json:"fencesBytes"`     // per author
	Active       Figure `json:"activeBytes"`     // entry per active user
	Latest       Figure `json:"latestBytes"`     // entry per author

	// Bytes in SQL per row, including indexes.
	UserRow    Figure `json:"userRowBytes"`
	SessionRow Figure `json:"sessionRowBytes"`
	MarkerRow  Figure `json:"markerRowBytes"` // read marker of a user
	FollowRow  Figure `json:"followRowBytes"`
	PostRow    Figure `json:"postRowBytes"`
	ReceiptRow Figure `json:"receiptRowBytes"` // receipt of a post's fan-out
}

// row is a row of the table: either a figure or work.
type row struct {
	name, unit string
	figure     Figure
	work       *Work
}

func (c *Constants) rows() []row {
	const us = "µs"
	return []row{
		{"page of 20", us, nil, &c.Page},
		{"its number of unread posts, kept", us, nil, &c.Unread},
		{"the same, counted", us, nil, &c.Count},
		{"createPost and its job", us, nil, &c.Post},
		{"the same of a reply", us, nil, &c.Reply},
		{"repost and its job", us, nil, &c.Repost},
		{"push to one follower", us, nil, &c.Push},
		{"first live delivery of a post by a server", us, nil, &c.Wake},
		{"each further live delivery", us, nil, &c.Delivery},
		{"connection with its subscription", us, nil, &c.Connect},
		{"the same idle, for a second", us, nil, &c.Hold},
		{"nothing to do, for a second", us, nil, &c.Idle},
		{"look-up of a recipient at a server, by Redis' clock", us, c.LookUp, nil},
		{"idle connection, resident memory", "bytes", c.Connection, nil},
		{"page of 20, body", "bytes", c.PageBytes, nil},
		{"live event, message", "bytes", c.EventBytes, nil},
		{"Redis: inbox, entries measured", "", c.InboxEntries, nil},
		{"Redis: inbox, an entry", "bytes", c.InboxEntry, nil},
		{"Redis: inbox, coverage and journal", "bytes", c.InboxRest, nil},
		{"Redis: outbox, an entry", "bytes", c.OutboxEntry, nil},
		{"Redis: outbox, coverage", "bytes", c.OutboxRest, nil},
		{"Redis: fences of an author", "bytes", c.Fences, nil},
		{"Redis: an active user", "bytes", c.Active, nil},
		{"Redis: latest post of an author", "bytes", c.Latest, nil},
		{"SQL: user", "bytes", c.UserRow, nil},
		{"SQL: session", "bytes", c.SessionRow, nil},
		{"SQL: read marker", "bytes", c.MarkerRow, nil},
		{"SQL: follow", "bytes", c.FollowRow, nil},
		{"SQL: post", "bytes", c.PostRow, nil},
		{"SQL: receipt of a post", "bytes", c.ReceiptRow, nil},
	}
}

// Print writes the constants as a Markdown table.
func (c *Constants) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nConstants, measured on %s:\n\n", c.Machine)
	fmt.Fprintln(out, "| processor time of | server | worker | PostgreSQL | Redis |\n| --- | --- | --- | --- | --- |")
	for _, r := range c.rows() {
		if w := r.work; w != nil {
			fmt.Fprintf(out, "| %s | %s | %s | %s | %s |\n", r.name, show(w.Server, r.unit), show(w.Worker, r.unit), show(w.SQL, r.unit), show(w.Redis, r.unit))
		}
	}
	fmt.Fprintln(out, "\n| what | figure |\n| --- | --- |")
	for _, r := range c.rows() {
		if r.work == nil {
			fmt.Fprintf(out, "| %s | %s |\n", r.name, show(r.figure, r.unit))
		}
	}
	for _, why := range c.Unknown {
		fmt.Fprintf(out, "\nNot known: %s\n", why)
	}
	_, err := fmt.Fprintln(out)
	return err
}

// Each calls fn for every known figure, in the order of the table.
func (c *Constants) Each(fn func(name string, value float64)) {
	known := func(name string, f Figure) {
		if f != nil {
			fn(name, *f)
		}
	}
	for _, r := range c.rows() {
		known(r.name, r.figure)
		if w := r.work; w != nil {
			known(r.name+": server", w.Server)
			known(r.name+": worker", w.Worker)
			known(r.name+": PostgreSQL", w.SQL)
			known(r.name+": Redis", w.Redis)
		}
	}
}

// show formats a figure with three digits and its unit.
func show(f Figure, unit string) string {
	if f == nil {
		return "not known"
	}
	if unit != "" {
		unit = " " + unit
	}
	return digits(*f) + unit
}

// digits formats a number with at least three digits. It has decimals only if the integer part
// has fewer than three digits.
func digits(v float64) string {
	places := 0
	for limit := 100.0; places < 3 && v != 0 && math.Abs(v) < limit; limit /= 10 {
		places++
	}
	return fmt.Sprintf("%.*f", places, v)
}

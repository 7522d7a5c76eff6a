// Package progress shows the progress of a long command. On a terminal it draws a bar; elsewhere it
// writes a line every few seconds.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 30 // characters, on a terminal with room for it
)

// Progress shows one step of a command. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil if w is not a terminal
	what  string
	unit  string
	total int64

	start, shown time.Time
	position     int64
	units        int
}

// Start begins to show a step on w. total is the last position that At receives; 0 means unknown. unit
// names what At counts, and what the rate shows. The caller must call Stop.
func Start(w io.Writer, what string, total int64, unit string) *Progress {
	p := &Progress{w: w, what: what, total: total, unit: unit, start: time.Now()}
	p.shown = p.start
	if OnTerminal(w) {
		p.draw()
	}
	return p
}

// OnTerminal reports whether Start shows a bar on w.
func OnTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// draw shows the bar for the first time.
func (p *Progress) draw() {
	total := p.total
	if total == 0 {
		total = -1 // a spinner
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w), progressbar.OptionSetWidth(barWidth),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionShowDescriptionAtLineEnd())
	p.show("")
}

// At sets the position of the step and the number of finished units, and shows them if an update is
// due.
func (p *Progress) At(position int64, units int) {
	p.position, p.units = position, units
	every := lineEvery
	if p.bar != nil {
		every = barEvery
	}
	if time.Since(p.shown) < every {
		return
	}
	left := ""
	if gone := time.Since(p.start); position > 0 && p.total > position {
		left = ", " + time.Duration(float64(gone)*float64(p.total-position)/float64(position)).Round(time.Second).String() + " left"
	}
	p.show(left)
}

// Clear removes the bar from the terminal, so that the caller can write something else. The next At
// may show it again.
func (p *Progress) Clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// Stop shows the final state and ends the line.
func (p *Progress) Stop() {
	p.show(", took " + time.Since(p.start).Round(100*time.Millisecond).String())
	if p.bar != nil {
		fmt.Fprintln(p.w)
	}
}

// show shows the current state, followed by end.
func (p *Progress) show(end string) {
	p.shown = time.Now()
	rate := float64(p.units) / max(time.Since(p.start).Seconds(), 0.001)
	done := fmt.Sprintf("%d %s, %.0f/s%s", p.units, p.unit, rate, end)
	switch {
	case p.bar != nil: // the bar itself shows the percentage, if the total is known
		_ = p.bar.Set64(p.position)
		p.bar.Describe(p.what + " " + done)
	case p.total == 0:
		fmt.Fprintln(p.w, p.what, done)
	default:
		fmt.Fprintf(p.w, "%s %.0f%%, %s\n", p.what, 100*min(1, float64(p.position)/float64(p.total)), done)
	}
}

// Reader counts the bytes that are read from a reader. Another goroutine may ask for their number.
type Reader struct {
	from io.Reader
	n    atomic.Int64
}

// NewReader returns a Reader of from.
func NewReader(from io.Reader) *Reader { return &Reader{from: from} }

func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.n.Add(int64(n))
	return n, err
}

// Bytes returns how many bytes were read.
func (r *Reader) Bytes() int64 { return r.n.Load() }

// Package progress shows how far a long command has come: as a bar on a terminal,
// elsewhere as a line now and then. It initializes no tables: every command pays for
// what a package does before main.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
	maxBar    = 40 // characters
)

// Progress shows one step of a command. It is not safe for concurrent use.
type Progress struct {
	w     io.Writer
	width func() int // of the terminal, in characters; nil elsewhere
	what  string
	unit  string
	total int64

	start, shown time.Time
	position     int64
	units        int
}

// Start begins to show a step on w. The total is in the unit of the position that At
// gets; with 0 it is not known. The rate counts unit. All texts must be ASCII. The
// caller must call Stop.
func Start(w io.Writer, what string, total int64, unit string) *Progress {
	p := &Progress{w: w, what: what, total: total, unit: unit, start: time.Now()}
	p.shown = p.start
	if OnTerminal(w) {
		p.width = func() int {
			width, _, err := term.GetSize(int(w.(*os.File).Fd()))
			if err != nil {
				return 80
			}
			return width
		}
		p.show()
	}
	return p
}

// OnTerminal reports whether Start shows a bar on w.
func OnTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// At sets the position of the step and how many units are done, and shows them if that
// is due.
func (p *Progress) At(position int64, units int) {
	p.position, p.units = position, units
	every := lineEvery
	if p.width != nil {
		every = barEvery
	}
	if time.Since(p.shown) >= every {
		p.show()
	}
}

// Clear takes the bar off the terminal, so that something else can be written there.
// The next At may show it again.
func (p *Progress) Clear() {
	if p.width != nil {
		fmt.Fprintf(p.w, "\r%*s\r", max(0, p.width()-1), "")
	}
}

// Stop shows the last state and ends the line.
func (p *Progress) Stop() {
	took := ", took " + time.Since(p.start).Round(100*time.Millisecond).String()
	if p.width != nil {
		fmt.Fprint(p.w, p.bar(took, p.width()), "\n")
	} else {
		fmt.Fprint(p.w, p.line(took), "\n")
	}
}

func (p *Progress) show() {
	p.shown = time.Now()
	left := ""
	if gone := p.shown.Sub(p.start); p.position > 0 && p.total > p.position {
		left = ", " + time.Duration(float64(gone)*float64(p.total-p.position)/float64(p.position)).Round(time.Second).String() + " left"
	}
	if p.width != nil {
		fmt.Fprint(p.w, p.bar(left, p.width()))
	} else {
		fmt.Fprint(p.w, p.line(left), "\n")
	}
}

// line returns the state in words, with end at its end.
func (p *Progress) line(end string) string {
	rate := float64(p.units) / max(time.Since(p.start).Seconds(), 0.001)
	done := fmt.Sprintf("%d %s, %.0f/s%s", p.units, p.unit, rate, end)
	if p.total == 0 {
		return p.what + " " + done
	}
	return fmt.Sprintf("%s %.0f%%, %s", p.what, 100*p.part(), done)
}

// bar returns the line over the last one of the terminal, after a bar if there is room
// for one. A character stays free: some terminals go to the next line with the last.
func (p *Progress) bar(end string, width int) string {
	line := p.line(end)
	if room := min(maxBar, width-1-len(line)-3); room > 0 && p.total > 0 {
		full := int(p.part() * float64(room))
		line = "[" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "] " + line
	}
	width = max(0, width-1)
	return fmt.Sprintf("\r%-*.*s", width, width, line)
}

// part returns how much of the total is done, up to 1.
func (p *Progress) part() float64 { return min(1, float64(p.position)/float64(p.total)) }

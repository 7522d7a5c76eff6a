package seed

import (
	"fmt"
	"io"
	"time"

	"github.com/cheggaaa/pb/v3"
)

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second

	// The figures are the string done, which progress.at sets.
	barTemplate  = `{{string . "what"}} {{bar . }} {{percent . "%.0f%%"}}, {{string . "done"}}, {{rtime . "%s left" "took %s" "? left"}}`
	lineTemplate = `{{string . "what"}} {{percent . "%.0f%%"}}, {{string . "done"}}, {{rtime . "%s left" "took %s" "? left"}}` + "\n"
)

// progress shows how far a step is, how fast and how long it will take: as a bar on
// a terminal, elsewhere as lines.
type progress struct {
	bar   *pb.ProgressBar
	start time.Time
	unit  string
}

// startProgress begins to show a step. total is in the unit of the position that
// progress.at gets; the rate counts unit. The caller must call stop.
func startProgress(w io.Writer, what string, total int64, unit string) *progress {
	p := &progress{bar: pb.New64(total), start: time.Now(), unit: unit}
	p.bar.Set("what", what)
	p.bar.SetTemplateString(lineTemplate).SetRefreshRate(lineEvery).SetWriter(w)
	if p.bar.GetBool(pb.Terminal) { // SetWriter has detected it
		p.bar.SetTemplateString(barTemplate).SetRefreshRate(barEvery)
	}
	p.at(0, 0)
	p.bar.Start()
	return p
}

// at sets the position of the step, and how many units are done.
func (p *progress) at(position int64, units int) {
	rate := float64(units) / max(time.Since(p.start).Seconds(), 0.001)
	p.bar.SetCurrent(position)
	p.bar.Set("done", fmt.Sprintf("%d %s, %.0f/s", units, p.unit, rate))
}

// stop shows the last state and ends the line.
func (p *progress) stop() { p.bar.Finish() }

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

	// The figures are the string done, set by progress.at.
	barTemplate  = `{{string . "what"}} {{bar . }} {{percent . "%.0f%%"}}, {{string . "done"}}, {{rtime . "%s left" "took %s" "? left"}}`
	lineTemplate = `{{string . "what"}} {{percent . "%.0f%%"}}, {{string . "done"}}, {{rtime . "%s left" "took %s" "? left"}}` + "\n"
)

// progress shows how far a step is, how fast and how long it will take: a bar
// on a terminal, elsewhere lines.
type progress struct {
	bar   *pb.ProgressBar
	start time.Time
	unit  string
}

// startProgress begins to show a step. total is in whatever progress.at is told
// as position; unit is what the rate counts. stop must be called.
func startProgress(w io.Writer, what string, total int64, unit string) *progress {
	p := &progress{bar: pb.New64(total), start: time.Now(), unit: unit}
	p.bar.Set("what", what)
	p.bar.SetTemplateString(lineTemplate).SetRefreshRate(lineEvery).SetWriter(w)
	if p.bar.GetBool(pb.Terminal) { // SetWriter has found out
		p.bar.SetTemplateString(barTemplate).SetRefreshRate(barEvery)
	}
	p.at(0, 0)
	p.bar.Start()
	return p
}

// at says how far the step is, and how many units that are.
func (p *progress) at(position int64, units int) {
	rate := float64(units) / max(time.Since(p.start).Seconds(), 0.001)
	p.bar.SetCurrent(position)
	p.bar.Set("done", fmt.Sprintf("%d %s, %.0f/s", units, p.unit, rate))
}

// stop shows the last state and ends the line.
func (p *progress) stop() { p.bar.Finish() }

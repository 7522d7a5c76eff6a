// Package plot draws the latency of operations at each rate.
package plot

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// barWidth is the length in characters of a bar at the limit. Bars extend to twice the limit.
const barWidth = 25

// Step is the result at one rate.
type Step struct {
	Rate float64  // operations per second
	P99  *float64 // in ms, of the slowest kind of operation; nil: more than one in a hundred failed
	Held bool     // whether P99 is within the limit
}

// Bars draws the steps and the limit, in ms, for a terminal.
func Bars(out io.Writer, limit float64, steps []Step) {
	fmt.Fprintf(out, "\n%10s  p99 ms\n", "rate")
	for _, st := range steps {
		says, length := "failed", 2*barWidth
		if st.P99 != nil {
			says, length = fmt.Sprintf("%.2f", *st.P99), min(2*barWidth, int(math.Ceil(*st.P99/limit*barWidth)))
		}
		if !st.Held {
			says += ", missed"
		}
		bar := []rune(strings.Repeat("█", length) + strings.Repeat(" ", 2*barWidth-length))
		bar[barWidth] = '│' // the limit
		fmt.Fprintf(out, "%10.1f  %s %s\n", st.Rate, string(bar), says)
	}
}

// Size of the SVG picture, in pixels.
const (
	plotWidth  = 720
	plotHeight = 400
	plotMargin = 60
)

// SVG draws the steps, the limit in ms, and the steps of an earlier run if there are any. Rates
// and times have logarithmic scales.
func SVG(out io.Writer, title string, limit float64, steps, earlier []Step) error {
	low, high := limit, limit // in ms
	first, last := math.Inf(1), 0.0
	each := func(of []Step, fn func(st Step, ms float64)) {
		for _, st := range of {
			if st.P99 != nil && *st.P99 > 0 {
				fn(st, *st.P99)
			}
		}
	}
	for _, of := range [][]Step{steps, earlier} {
		each(of, func(st Step, ms float64) {
			low, high = min(low, ms), max(high, ms)
			first, last = min(first, st.Rate), max(last, st.Rate)
		})
	}
	low, high = low/1.5, high*1.5
	first, last = min(first, last)/1.2, last*1.2
	scale := func(v, from, to float64, pixels int) float64 {
		if !(to > from && from > 0) {
			return 0
		}
		return math.Log(v/from) / math.Log(to/from) * float64(pixels)
	}
	x := func(rate float64) float64 { return plotMargin + scale(rate, first, last, plotWidth-2*plotMargin) }
	y := func(ms float64) float64 {
		return plotHeight - plotMargin - scale(ms, low, high, plotHeight-2*plotMargin)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
<text x="%d" y="24" font-size="15">%s</text>
<text x="%d" y="%d" text-anchor="middle">operations per second</text>
<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %[7]d)">p99 ms</text>
<path d="M%d %d V%d H%d" fill="none" stroke="black"/>
`, plotWidth, plotHeight, plotMargin, title, plotWidth/2, plotHeight-8, plotHeight/2,
		plotMargin, plotMargin, plotHeight-plotMargin, plotWidth-plotMargin)
	fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="crimson" stroke-dasharray="2 3"/><text x="%d" y="%.1f" text-anchor="end" fill="crimson">%g ms</text>`+"\n",
		plotMargin, y(limit), plotWidth-plotMargin, plotWidth-plotMargin, y(limit)-5, limit)
	line := func(of []Step, colour, name string, row int) {
		points := ""
		each(of, func(st Step, ms float64) {
			points += fmt.Sprintf(" %.1f,%.1f", x(st.Rate), y(ms))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.1f/s: %.2f ms</title></circle>`+"\n", x(st.Rate), y(ms), colour, st.Rate, ms)
		})
		if points != "" {
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s"/><text x="%d" y="%d" fill="%s">%s</text>`+"\n",
				points[1:], colour, plotMargin+8, plotMargin+16*row, colour, name)
		}
	}
	line(earlier, "gray", "before", 1)
	line(steps, "royalblue", "now", 0)
	for _, of := range []float64{first * 1.2, last / 1.2} {
		if of > 0 && !math.IsInf(of, 0) {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x(of), plotHeight-plotMargin+16, of)
		}
	}
	for _, ms := range []float64{low * 1.5, high / 1.5} {
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%.1f</text>`+"\n", plotMargin-6, y(ms)+4, ms)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"tideline/bench/plot"
)

const (
	minRate  = 1
	maxRate  = 100_000
	maxSteps = 30
	near     = 1.05 // a search ends when the highest rate that holds and the lowest that does not are within this factor
)

// search is the result of a scenario, at one rate or at the rates that --find tried.
type search struct {
	URL         string  `json:"url"`
	Limit       float64 `json:"limitMs,omitempty"` // --p99 in ms; 0 without --find
	Highest     float64 `json:"highest,omitempty"` // highest rate that held the limit; 0: none
	Steps       []*step `json:"steps"`             // in the order in which they were tried
	Interrupted bool    `json:"interrupted"`
	Broken      int     `json:"broken"`  // subscriptions that ended unexpectedly, which ends a search
	Missing     int     `json:"missing"` // events still missing a minute after their step
	Invalidated int     `json:"invalidated"`
	Doubled     int     `json:"doubled"`
	Strays      int     `json:"strays"`
}

// step is the result at one rate.
type step struct {
	Rate   float64        `json:"rate"`           // arrivals per second
	Load   string         `json:"load,omitempty"` // in a hot-spot: onOne or onAll
	Kinds  []kindOf       `json:"kinds"`
	P99    *float64       `json:"p99Ms"` // of the slowest kind; nil: more than one in a hundred failed
	Held   bool           `json:"held"`
	Errors map[string]int `json:"errors"`
}

// kindOf summarises the operations of one kind. The times exclude failures.
type kindOf struct {
	Kind   string `json:"kind"`
	Failed int    `json:"failed"`
	series
}

// newStep decides whether the samples hold the limit. A failure counts as infinitely slow.
func newStep(rate float64, elapsed time.Duration, s *samples, limit time.Duration) *step {
	st := &step{Rate: rate, Errors: map[string]int{}}
	worst := time.Duration(0)
	names := slices.Collect(maps.Keys(s.took))
	for name := range s.failed {
		if _, both := s.took[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		k := kindOf{name, s.failed[name], summarize(s.took[name], elapsed)}
		st.Kinds = append(st.Kinds, k)
		all := append(slices.Clone(s.took[name]), slices.Repeat([]time.Duration{math.MaxInt64}, k.Failed)...)
		worst = max(worst, percentile(all, 0.99))
	}
	if len(names) > 0 && worst < math.MaxInt64 {
		p99 := worst.Seconds() * 1000
		st.P99, st.Held = &p99, worst <= limit
	}
	return st
}

// miss makes the step one that does not hold the limit.
func (st *step) miss() { st.P99, st.Held = nil, false }

// The loads of a hot-spot: users follow and like one author, who also posts, or any author.
const (
	onOne = "on one"
	onAll = "on all"
)

// find doubles the rate until it does not hold, or halves it until it does, and then narrows down the range
// between the two. It returns the highest rate that held, or 0. It ends early if ctx ends or try returns nil.
func find(ctx context.Context, start float64, try func(rate float64) *step) (highest float64) {
	lowest := math.Inf(1) // rate that did not hold
	for rate, n := start, 0; n < maxSteps && ctx.Err() == nil; n++ {
		st := try(rate)
		switch {
		case st == nil || ctx.Err() != nil:
			return highest
		case st.Held:
			highest = rate
		default:
			lowest = rate
		}
		switch {
		case math.IsInf(lowest, 1):
			rate = min(2*rate, maxRate)
		case highest == 0:
			rate = max(rate/2, minRate)
		default:
			rate = math.Sqrt(highest * lowest)
		}
		if lowest <= highest*near || lowest == minRate || highest == maxRate {
			return highest
		}
	}
	return highest
}

// search runs one step, or the steps of --find.
func (r *run) search(ctx context.Context, say func(string, ...any)) *search {
	s := &search{URL: r.options.URL, Limit: r.options.P99.Seconds() * 1000}
	try := func(rate float64) *step {
		pace := fmt.Sprintf("%.1f operations per second", rate)
		if r.options.Clients > 0 {
			pace = fmt.Sprintf("%d clients", r.options.Clients)
		}
		say("%s: %s for %v. Ctrl-C ends it earlier.", r.options.Scenario, pace, r.options.Duration)
		st := r.step(ctx, rate)
		s.Steps = append(s.Steps, st)
		for _, k := range st.Kinds {
			if k.Kind == liveDeliveries {
				s.Missing += k.Failed
			}
		}
		if s.Broken = int(r.broken.Load()); s.Broken > 0 {
			return nil // events missing after this would be blamed on the next rate
		}
		return st
	}
	switch {
	case r.options.Find:
		s.Highest = find(ctx, r.options.Rate, try)
	case r.options.Scenario == hotSpot:
		for _, load := range []string{onOne, onAll} {
			if r.spread = load == onAll; ctx.Err() == nil {
				if st := try(r.options.Rate); st != nil {
					st.Load = load
				}
			}
		}
	default:
		try(r.options.Rate)
	}
	r.hangUp()
	s.Interrupted = ctx.Err() != nil
	all := r.ledger.Totals()
	s.Invalidated, s.Doubled, s.Strays = r.invalidated, all.Doubled, all.Strays
	return s
}

// verdict returns nil if the search found no error.
func (s *search) verdict() error {
	if s.Broken > 0 {
		return fmt.Errorf("%d subscriptions ended by themselves", s.Broken)
	}
	if s.Missing+s.Doubled+s.Strays > 0 {
		return fmt.Errorf("live events: %d missing, %d doubled, %d astray", s.Missing, s.Doubled, s.Strays)
	}
	if s.Limit > 0 && s.Highest == 0 && !s.Interrupted {
		return fmt.Errorf("no rate held %v ms: the lowest was %.1f operations per second", s.Limit, s.byRate()[0].Rate)
	}
	done := 0
	for _, st := range s.Steps {
		for _, k := range st.Kinds {
			done += k.Count
		}
	}
	if done == 0 {
		return errors.New("no operation succeeded")
	}
	return nil
}

// byRate returns the steps, lowest rate first.
func (s *search) byRate() []*step {
	return slices.SortedStableFunc(slices.Values(s.Steps), func(a, b *step) int { return cmp.Compare(a.Rate, b.Rate) })
}

// plotted returns the steps for plotting, lowest rate first.
func (s *search) plotted() (steps []plot.Step) {
	for _, st := range s.byRate() {
		steps = append(steps, plot.Step{Rate: st.Rate, P99: st.P99, Held: st.Held})
	}
	return steps
}

func (s *search) plot(out io.Writer, title string, earlier *search) error {
	var before []plot.Step
	if earlier != nil {
		before = earlier.plotted()
	}
	return plot.SVG(out, title, s.Limit, s.plotted(), before)
}

func (s *search) print(out io.Writer, scenario string) error {
	interrupted := ""
	if s.Interrupted {
		interrupted = ", interrupted"
	}
	fmt.Fprintf(out, "\n%s: %s%s\n\n%10s  %-18s%10s%12s%10s%10s%10s%10s\n", s.URL, scenario, interrupted,
		"rate", "", "count", "per second", "p50 ms", "p90 ms", "p99 ms", "failed")
	for _, st := range s.byRate() {
		rate := cmp.Or(st.Load, fmt.Sprintf("%.1f", st.Rate))
		for _, k := range st.Kinds {
			fmt.Fprintf(out, "%10s  %-18s%10d%12.1f%10.2f%10.2f%10.2f%10d\n", rate, k.Kind, k.Count, k.PerSecond, k.P50, k.P90, k.P99, k.Failed)
			rate = ""
		}
		if len(st.Errors) > 0 {
			fmt.Fprintf(out, "%10s  errors: %s\n", rate, counts(st.Errors))
		}
	}
	s.printFactors(out)
	if s.Limit > 0 {
		plot.Bars(out, s.Limit, s.plotted())
		fmt.Fprintf(out, "\nhighest rate that holds %g ms: %.1f operations per second\n", s.Limit, s.Highest)
	}
	_, err := fmt.Fprintf(out, "live events: %d missing, %d doubled, %d astray, %d timelines invalidated, %d subscriptions broken\n",
		s.Missing, s.Doubled, s.Strays, s.Invalidated, s.Broken)
	return err
}

// printFactors prints, for a hot-spot, how many times as long operations on one author take
// as operations spread over all.
func (s *search) printFactors(out io.Writer) {
	if len(s.Steps) != 2 || s.Steps[0].Load != onOne {
		return
	}
	fmt.Fprintf(out, "\np99 on one, times that on all:")
	for _, one := range s.Steps[0].Kinds {
		for _, all := range s.Steps[1].Kinds {
			if one.Kind == all.Kind && all.P99 > 0 {
				fmt.Fprintf(out, " %s %.1f,", one.Kind, one.P99/all.P99)
			}
		}
	}
	fmt.Fprintln(out)
}

// counts formats counts by their codes.
func counts(of map[string]int) string {
	var all []string
	for _, code := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%d %s", of[code], code))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"tideline/bench/floor"
)

// report is the result of a run without a scenario. --json prints it as JSON.
type report struct {
	URL         string  `json:"url"`
	Users       int     `json:"users"`
	Follows     int     `json:"follows"`
	Subscribers int     `json:"subscribers"`
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted"`

	Posts         series  `json:"posts"`
	Deliveries    series  `json:"deliveries"`
	DeliveryFloor *series `json:"deliveryFloor,omitempty"` // nil if it was not measured
	Reads         series  `json:"reads"`
	ReadFloor     *series `json:"readFloor,omitempty"`

	// Multiples of the measured floor, by quantile.
	DeliveryRatio *ratio `json:"deliveryRatio,omitempty"`
	ReadRatio     *ratio `json:"readRatio,omitempty"`

	Missing     int            `json:"missing"`
	Doubled     int            `json:"doubled"`
	Strays      int            `json:"strays"`
	Invalidated int            `json:"invalidated"`
	Errors      map[string]int `json:"errors"`
}

// series summarises the samples of one kind. Latencies are in milliseconds.
type series struct {
	Count     int     `json:"count"`
	PerSecond float64 `json:"perSecond,omitempty"` // 0: not meaningful
	P50       float64 `json:"p50Ms"`
	P90       float64 `json:"p90Ms"`
	P99       float64 `json:"p99Ms"`
	Max       float64 `json:"maxMs"`
}

type ratio struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// summarize sorts the samples and summarises them. It omits the rate if elapsed is 0.
func summarize(samples []time.Duration, elapsed time.Duration) series {
	slices.Sort(samples)
	ms := func(q float64) float64 { return percentile(samples, q).Seconds() * 1000 }
	s := series{Count: len(samples), P50: ms(0.5), P90: ms(0.9), P99: ms(0.99), Max: ms(1)}
	if elapsed > 0 {
		s.PerSecond = float64(len(samples)) / elapsed.Seconds()
	}
	return s
}

// percentile returns the smallest sample that at least the share q of all samples does not exceed, 0 < q <=
// 1. It returns 0 if there are no samples.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func over(s series, floor series) *ratio {
	if s.Count == 0 || floor.Count == 0 {
		return nil
	}
	return &ratio{s.P50 / floor.P50, s.P90 / floor.P90, s.P99 / floor.P99}
}

// report summarises a run after its load.
func (r *run) report(interrupted bool) *report {
	all := r.ledger.Totals()
	r.mu.Lock()
	defer r.mu.Unlock()
	follows := 0
	for _, followers := range r.graph {
		follows += len(followers)
	}
	return &report{
		URL: r.options.URL, Users: len(r.users), Follows: follows, Subscribers: len(r.subs),
		Seconds: r.loaded.Seconds(), Interrupted: interrupted,
		Posts: summarize(all.Calls, r.loaded),
		// If the rate is too high, deliveries continue after the load.
		Deliveries: summarize(all.Latencies, max(r.loaded, all.Span)),
		Reads:      summarize(r.reads, r.loaded),
		Missing:    all.Missing, Doubled: all.Doubled, Strays: all.Strays, Invalidated: r.invalidated,
		Errors: maps.Clone(r.errs),
	}
}

// addFloor measures and adds the floors.
func (rep *report) addFloor(ctx context.Context, r *run) error {
	if rep.Deliveries.Count > 0 {
		latencies, err := floor.Broadcast(ctx, r.ledger.Recipients(), r.eventBytes/r.events)
		if err != nil {
			return fmt.Errorf("broadcast: %w", err)
		}
		bare := summarize(latencies, 0)
		rep.DeliveryFloor, rep.DeliveryRatio = &bare, over(rep.Deliveries, bare)
	}
	if rep.Reads.Count > 0 {
		latencies, elapsed, err := floor.Pages(ctx, timelineQuery, r.options.Readers, r.pageBytes/rep.Reads.Count)
		if err != nil {
			return fmt.Errorf("read pages: %w", err)
		}
		bare := summarize(latencies, elapsed)
		rep.ReadFloor, rep.ReadRatio = &bare, over(rep.Reads, bare)
	}
	return nil
}

// verdict returns an error if live events went wrong or no post was created.
func (rep *report) verdict() error {
	if rep.Missing+rep.Doubled+rep.Strays > 0 {
		return fmt.Errorf("live events: %d missing, %d doubled, %d astray", rep.Missing, rep.Doubled, rep.Strays)
	}
	if rep.Posts.Count == 0 {
		return errors.New("no post could be created")
	}
	return nil
}

func (rep *report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rep)
	}
	interrupted := ""
	if rep.Interrupted {
		interrupted = ", interrupted"
	}
	fmt.Fprintf(out, "\n%s: %d users, %d follows, %d subscriptions, %.1f s%s\n\n",
		rep.URL, rep.Users, rep.Follows, rep.Subscribers, rep.Seconds, interrupted)
	fmt.Fprintf(out, "%18s%10s%12s%10s%10s%10s%10s\n", "", "count", "per second", "p50 ms", "p90 ms", "p99 ms", "max ms")
	row := func(name string, s *series) {
		if s == nil {
			return
		}
		rate := ""
		if s.PerSecond > 0 {
			rate = fmt.Sprintf("%.1f", s.PerSecond)
		}
		fmt.Fprintf(out, "%-18s%10d%12s%10.2f%10.2f%10.2f%10.2f\n", name, s.Count, rate, s.P50, s.P90, s.P99, s.Max)
	}
	times := func(r *ratio) {
		if r != nil {
			fmt.Fprintf(out, "%-18s%22s%10.1f%10.1f%10.1f\n", "  times the floor", "", r.P50, r.P90, r.P99)
		}
	}
	row("posts", &rep.Posts)
	row("live deliveries", &rep.Deliveries)
	row("  floor: broadcast", rep.DeliveryFloor)
	times(rep.DeliveryRatio)
	row("timeline reads", &rep.Reads)
	row("  floor: bare HTTP", rep.ReadFloor)
	times(rep.ReadRatio)
	_, err := fmt.Fprintf(out, "\nlive events: %d missing, %d doubled, %d astray, %d timelines invalidated\nerrors: %s\n",
		rep.Missing, rep.Doubled, rep.Strays, rep.Invalidated, counts(rep.Errors))
	return err
}

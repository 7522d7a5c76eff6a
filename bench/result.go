package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// result is the result of a run. --save stores it as JSON.
type result struct {
	Scenario string  `json:"scenario,omitempty"`
	Report   *report `json:"report,omitempty"` // of a run without a scenario
	Search   *search `json:"search,omitempty"` // of a run with a scenario
	Model    *model  `json:"model,omitempty"`  // of --model
}

func (res *result) print(out io.Writer, asJSON bool) error {
	switch {
	case res.Report != nil:
		return res.Report.print(out, asJSON)
	case asJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if res.Model != nil {
			return encoder.Encode(res.Model)
		}
		return encoder.Encode(res.Search)
	case res.Model != nil:
		return res.Model.print(out)
	}
	return res.Search.print(out, res.Scenario)
}

func (res *result) verdict() error {
	switch {
	case res.Report != nil:
		return res.Report.verdict()
	case res.Model != nil:
		return nil
	}
	return res.Search.verdict()
}

// openFiles checks before the load whether the files of the options can be used. It returns the result to
// compare with, or nil without --compare.
func openFiles(o Options) (*result, error) {
	var earlier *result
	if o.Compare != "" {
		var err error
		if earlier, err = readResult(o.Compare); err != nil {
			return nil, fmt.Errorf("--compare: %w", err)
		}
		if earlier.Scenario != o.Scenario || (earlier.Model != nil) != o.Model || earlier.Search != nil && (earlier.Search.Limit > 0) != o.Find {
			return nil, fmt.Errorf("--compare: %s is of another kind of run: %s", o.Compare, earlier.kind())
		}
	}
	for flag, path := range map[string]string{"--save": o.Save, "--plot": o.Plot} {
		if path == "" {
			continue
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		f.Close()
	}
	return earlier, nil
}

// readResult reads a file that --save has written.
func readResult(path string) (*result, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	res := &result{}
	if err := json.Unmarshal(text, res); err != nil || res.Report == nil && res.Search == nil && res.Model == nil {
		return nil, fmt.Errorf("%s is not a result that --save kept", path)
	}
	return res, nil
}

// kind returns the options that make a result of this kind.
func (res *result) kind() string {
	switch {
	case res.Model != nil:
		return "--model"
	case res.Search == nil:
		return "without --scenario"
	case res.Search.Limit > 0:
		return "--find --scenario " + res.Scenario
	}
	return "--scenario " + res.Scenario
}

// keep writes the files of the options, and prints the comparison.
func (res *result) keep(o Options, earlier *result, out io.Writer) error {
	if earlier != nil {
		res.compare(earlier, out)
	}
	if o.Save != "" {
		text, err := json.MarshalIndent(res, "", "  ")
		if err == nil {
			err = os.WriteFile(o.Save, append(text, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	if o.Plot == "" {
		return nil
	}
	f, err := os.Create(o.Plot)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	var before *search
	if earlier != nil {
		before = earlier.Search
	}
	if err := errors.Join(res.Search.plot(f, "bench, "+res.Scenario, before), f.Close()); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

// named is a named figure of a result.
type named struct {
	name  string
	value float64
}

// figures returns the figures to compare. For a search they are the rate that it found, and the times at that
// rate or, without --find, at the only one.
func (res *result) figures() (all []named) {
	add := func(kind string, s series) {
		if s.Count > 0 {
			all = append(all, named{kind + " per second", s.PerSecond}, named{kind + " p50 ms", s.P50}, named{kind + " p99 ms", s.P99})
		}
	}
	if rep := res.Report; rep != nil {
		add(posts, rep.Posts)
		add(liveDeliveries, rep.Deliveries)
		add(reads, rep.Reads)
		return all
	}
	if res.Model != nil {
		res.Model.Constants.Each(func(name string, value float64) { all = append(all, named{name, value}) })
		return all
	}
	rate := 0.0
	if len(res.Search.Steps) > 0 {
		rate = res.Search.Steps[0].Rate
	}
	if res.Search.Limit > 0 {
		rate = res.Search.Highest
		all = append(all, named{"highest rate per second", rate})
	}
	for _, st := range res.Search.Steps {
		if st.Rate == rate {
			for _, k := range st.Kinds {
				add(k.Kind, k.series)
			}
		}
	}
	return all
}

// compare prints the figures beside those of an earlier result.
func (res *result) compare(earlier *result, out io.Writer) {
	fmt.Fprintf(out, "\n%-56s%12s%12s%10s\n", "", "before", "now", "change")
	before := earlier.figures()
	for _, now := range res.figures() {
		i := slices.IndexFunc(before, func(n named) bool { return n.name == now.name })
		if i < 0 || before[i].value == 0 {
			fmt.Fprintf(out, "%-56s%12s%12.2f\n", now.name, "–", now.value)
			continue
		}
		fmt.Fprintf(out, "%-56s%12.2f%12.2f%+9.0f%%\n", now.name, before[i].value, now.value, 100*(now.value/before[i].value-1))
	}
}

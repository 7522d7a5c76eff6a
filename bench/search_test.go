package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holdsUpTo returns a target that holds every rate up to a capacity, and records the rates tried.
func holdsUpTo(capacity float64, tried *[]float64) func(float64) *step {
	return func(rate float64) *step {
		*tried = append(*tried, rate)
		return &step{Rate: rate, Held: rate <= capacity}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ start, capacity float64 }{
		"above the start":         {20, 1234},
		"below the start":         {1000, 3},
		"just the start":          {20, 20},
		"the lowest":              {20, minRate},
		"more than may be tried":  {20, 10 * maxRate},
		"less than may be tried":  {20, minRate / 2.},
		"between two that double": {64, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var tried []float64
			found := find(t.Context(), c.start, holdsUpTo(c.capacity, &tried))
			require.LessOrEqual(t, len(tried), maxSteps)
			switch {
			case c.capacity < minRate:
				require.Zero(t, found)
			case c.capacity > maxRate:
				require.EqualValues(t, maxRate, found)
			default:
				require.LessOrEqual(t, found, c.capacity)
				require.Greater(t, found*near, c.capacity)
			}
		})
	}

	var tried []float64
	find(t.Context(), 64, holdsUpTo(100, &tried))
	require.Equal(t, []float64{64, 128}, tried[:2])
	require.InDelta(t, 90.5, tried[2], 0.1) // the geometric mean of both
}

func TestFindEndsEarly(t *testing.T) {
	t.Parallel()
	var tried []float64
	held := holdsUpTo(1000, &tried)
	require.EqualValues(t, 20, find(t.Context(), 20, func(rate float64) *step {
		if rate > 20 {
			return nil // a subscription broke
		}
		return held(rate)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	require.EqualValues(t, 20, find(ctx, 20, func(rate float64) *step {
		if rate > 20 {
			cancel() // the step is not complete
		}
		return held(rate)
	}))
}

// A target that stops for a second is late for all operations that were due in that second,
// not only for those in progress.
func TestTimesCountFromTheMomentOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		pause := began.Add(2 * time.Second)
		s := newSamples()
		refused := arrive(t.Context(), 100, 10*time.Second, func(due time.Time) {
			if now := time.Now(); now.After(pause) && now.Before(pause.Add(time.Second)) {
				time.Sleep(pause.Add(time.Second).Sub(now))
			}
			s.add(reads, time.Since(due), nil)
		})
		require.Zero(t, refused)
		n := len(s.took[reads])
		require.InDelta(t, 1000, n, 100)
		late := 0
		for _, took := range s.took[reads] {
			if took > 0 {
				late++
			}
		}
		require.InDelta(t, 100, late, 30)
		require.False(t, newStep(100, 10*time.Second, s, 500*time.Millisecond).Held) // a twentieth of the operations took longer
		require.True(t, newStep(100, 10*time.Second, s, time.Second).Held)
	})
}

func TestOperationsBeyondTheBoundAreNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int64
		refused := arrive(t.Context(), 1000, 4*time.Second, func(time.Time) {
			begun.Add(1)
			time.Sleep(time.Minute)
		})
		require.EqualValues(t, underWay, begun.Load())
		require.InDelta(t, 2000, refused, 300)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		arrive(ctx, 10, time.Hour, func(time.Time) {})
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestStep(t *testing.T) {
	t.Parallel()
	s := newSamples()
	for range 198 {
		s.add(reads, time.Millisecond, nil)
	}
	s.add(posts, 3*time.Millisecond, nil)
	s.add(reads, 0, errors.New("refused"))
	s.add(reads, time.Hour, nil)
	st := newStep(100, 2*time.Second, s, 3*time.Millisecond)
	require.True(t, st.Held) // of 200 reads, two may be late or fail
	require.EqualValues(t, 3, *st.P99)
	require.Equal(t, []string{posts, reads}, []string{st.Kinds[0].Kind, st.Kinds[1].Kind})
	require.Equal(t, 1, st.Kinds[1].Failed)
	require.False(t, newStep(100, 2*time.Second, s, 2*time.Millisecond).Held)

	s.add(liveDeliveries, 0, errors.New("missing"))
	st = newStep(100, 2*time.Second, s, time.Hour)
	require.False(t, st.Held)
	require.Nil(t, st.P99)
	require.False(t, newStep(100, time.Second, newSamples(), time.Hour).Held)
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	for name := range scenarios {
		kinds := drawn(scenarios[name])
		require.NotEmpty(t, kinds)
		require.Equal(t, kinds, drawn(scenarios[name]))
	}
	require.Len(t, drawn(scenarios["read-heavy"]), 100)
	require.Equal(t, []string{replies, reposts, reposts}, drawn(Options{Scenario: "mixed", Mix: map[string]int{"replies": 1, "reposts": 2, "reads": 0}}.frequencies()))
}

// exampleSearch is a search of a target that holds 60 operations a second.
func exampleSearch() *search {
	s := &search{URL: "http://127.0.0.1/graphql", Limit: 10, Highest: 60}
	for _, rate := range []float64{40, 80, 60} {
		samples := newSamples()
		samples.add(reads, time.Duration(rate/8)*time.Millisecond, nil)
		s.Steps = append(s.Steps, newStep(rate, time.Second, samples, 9*time.Millisecond))
	}
	s.Steps[1].Errors["TIMEOUT"] = 3
	s.Steps[1].miss()
	return s
}

func TestPrintSearch(t *testing.T) {
	t.Parallel()
	var text, encoded bytes.Buffer
	res := &result{Scenario: "read-heavy", Search: exampleSearch()}
	require.NoError(t, res.print(&text, false))
	out := text.String()
	require.Contains(t, out, "http://127.0.0.1/graphql: read-heavy\n")
	require.Contains(t, out, "      60.0  timeline reads             1         1.0      7.00      7.00      7.00         0\n")
	require.Contains(t, out, "            errors: 3 TIMEOUT\n")
	require.Contains(t, out, "      40.0  █████████████            │                         5.00\n")
	require.Contains(t, out, "█ failed, missed\n")
	require.Contains(t, out, "highest rate that holds 10 ms: 60.0 operations per second\n")
	require.NoError(t, res.verdict())

	require.NoError(t, res.print(&encoded, true))
	var back search
	require.NoError(t, json.Unmarshal(encoded.Bytes(), &back))
	require.Equal(t, *res.Search, back)
}

func TestSearchVerdict(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(s *search){
		"2 doubled":                      func(s *search) { s.Doubled = 2 },
		"no rate held 10 ms: the lowest": func(s *search) { s.Highest = 0 },
		"5 missing":                      func(s *search) { s.Missing = 5 },
		"1 subscriptions ended":          func(s *search) { s.Broken = 1 },
		"no operation succeeded":         func(s *search) { s.Limit, s.Steps = 0, nil },
	} {
		s := exampleSearch()
		change(s)
		assert.ErrorContains(t, s.verdict(), says)
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	empty := &search{Limit: 10, Steps: []*step{{Rate: 5}}} // all failed
	one := &search{Limit: 10, Steps: exampleSearch().Steps[:1]}
	for name, c := range map[string]struct {
		now, before *search
		points      int
	}{
		"one":       {exampleSearch(), nil, 2}, // the third failed
		"with both": {exampleSearch(), one, 3},
		"a point":   {one, nil, 1},
		"nothing":   {empty, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var picture bytes.Buffer
			require.NoError(t, c.now.plot(&picture, "bench", c.before))
			require.Equal(t, c.points, strings.Count(picture.String(), "<circle"), picture.String())
			require.NotContains(t, picture.String(), "NaN")
			require.NotContains(t, picture.String(), "Inf")
			require.NotContains(t, picture.String(), "%!")
			for d := xml.NewDecoder(&picture); ; {
				if _, err := d.Token(); err != nil {
					require.ErrorIs(t, err, io.EOF)
					break
				}
			}
		})
	}
	require.Error(t, exampleSearch().plot(brokenWriter{}, "", nil))
}

func TestSaveAndCompare(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Find: true, Scenario: "mixed", Save: filepath.Join(dir, "run.json"), Plot: filepath.Join(dir, "run.svg")}
	before := &result{Scenario: "mixed", Search: exampleSearch()}
	require.NoError(t, before.keep(o, nil, io.Discard))
	picture, err := os.ReadFile(o.Plot)
	require.NoError(t, err)
	require.Contains(t, string(picture), "</svg>")

	o.Compare = o.Save
	earlier, err := openFiles(o)
	require.NoError(t, err)
	require.Equal(t, before, earlier)
	now := &result{Scenario: "mixed", Search: exampleSearch()}
	now.Search.Highest = 40
	var table bytes.Buffer
	require.NoError(t, now.keep(o, earlier, &table))
	require.Contains(t, table.String(), "highest rate per second                                        60.00       40.00      -33%\n")
	require.Contains(t, table.String(), "timeline reads p99 ms                                           7.00        5.00      -29%\n")

	ordinary := &result{Report: &report{Posts: series{Count: 3, PerSecond: 2, P50: 1, P99: 4}}}
	table.Reset()
	ordinary.compare(&result{Report: &report{}}, &table)
	require.Contains(t, table.String(), "posts p99 ms                                                       –        4.00\n")
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	mixed := write("mixed.json", `{"scenario":"mixed","search":{"limitMs":5}}`)
	for name, c := range map[string]struct {
		o    Options
		says string
	}{
		"missing":           {Options{Compare: filepath.Join(dir, "none")}, "--compare: open"},
		"of another tool":   {Options{Compare: write("other.json", `{"a":1}`)}, "not a result that --save kept"},
		"not JSON":          {Options{Compare: write("text", `hello`)}, "not a result that --save kept"},
		"other scenario":    {Options{Compare: mixed, Find: true, Scenario: "celebrity"}, "--find --scenario mixed"},
		"not of --find":     {Options{Compare: mixed, Scenario: "mixed"}, "--find --scenario mixed"},
		"no such folder":    {Options{Save: filepath.Join(dir, "no", "run.json")}, "--save: open"},
		"nor for a picture": {Options{Plot: filepath.Join(dir, "no", "run.svg")}, "--plot: open"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openFiles(c.o)
			require.ErrorContains(t, err, c.says)
		})
	}
}

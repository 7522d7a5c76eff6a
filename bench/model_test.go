package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/bench/capacity"
)

// Constants that --save has kept are used for a new sizing and compared with others, without a measurement.
func TestModelIsKeptAndWorkedOutAnew(t *testing.T) {
	t.Parallel()
	kept := filepath.Join(t.TempDir(), "model.json")
	of := func(micros float64) *result {
		return &result{Model: &model{Constants: &capacity.Constants{
			Machine: "a machine", Page: capacity.Work{Server: new(micros)}, PageBytes: new(8000.0),
		}}}
	}
	var out bytes.Buffer
	require.NoError(t, of(100).keep(Options{Model: true, Save: kept}, nil, &out))

	o := Options{URL: "http://127.0.0.1:1/graphql", Duration: 1e9, Users: 2, Subscribers: 1, PostRate: 1,
		Model: true, For: 1000, Constants: kept, Assume: map[string]float64{"reads": 86.4, "peak": 1}}
	require.NoError(t, Run(t.Context(), o, Inside{}, &out, &out))
	require.Contains(t, out.String(), "| page of 20 | 100 µs | not known | not known | not known |")
	require.Contains(t, out.String(), "| pages read a second | 1.00 |")
	require.Contains(t, out.String(), "| processors in use: servers | not known |")

	earlier, err := openFiles(Options{Model: true, Compare: kept})
	require.NoError(t, err)
	out.Reset()
	of(150).compare(earlier, &out)
	require.Regexp(t, `page of 20: server +100\.00 +150\.00 +\+50%\n`, out.String())
	require.NotContains(t, out.String(), "Redis", "what is not known is not compared")

	_, err = openFiles(Options{Compare: kept})
	require.ErrorContains(t, err, "of another kind of run: --model")
	other := filepath.Join(t.TempDir(), "search.json")
	require.NoError(t, (&result{Scenario: "mixed", Search: &search{Steps: []*step{{Rate: 1}}}}).keep(Options{Save: other}, nil, &out))
	o.Constants = other
	require.ErrorContains(t, Run(t.Context(), o, Inside{}, &out, &out), "was kept --scenario mixed: it must be of --model")
}

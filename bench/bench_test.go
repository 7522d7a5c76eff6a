package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tideline/bench/floor"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for name, c := range map[string]struct {
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		"none":             {nil, 0.5, 0},
		"one":              {hundred[:1], 0.99, 1},
		"median of two":    {hundred[:2], 0.5, 1},
		"above the median": {hundred[:2], 0.51, 2},
		"p50":              {hundred, 0.5, 50},
		"p99":              {hundred, 0.99, 99},
		"max":              {hundred, 1, 100},
		"just above 0":     {hundred, 0.001, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, percentile(c.sorted, c.q))
		})
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	samples := []time.Duration{4 * time.Millisecond, time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond}
	require.Equal(t, series{Count: 4, PerSecond: 2, P50: 2, P90: 4, P99: 4, Max: 4}, summarize(samples, 2*time.Second))
	require.Zero(t, summarize(nil, time.Second))
	require.Equal(t, &ratio{2, 4, 4}, over(series{1, 0, 2, 4, 4, 4}, series{1, 0, 1, 1, 1, 1}))
	require.Nil(t, over(series{}, series{Count: 1}))
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	fine := series{Count: 1}
	require.NoError(t, (&report{Posts: fine, Invalidated: 3, Errors: map[string]int{"RATE_LIMITED": 1}}).verdict())
	for name, rep := range map[string]*report{
		"missing": {Posts: fine, Missing: 1},
		"doubled": {Posts: fine, Doubled: 1},
		"astray":  {Posts: fine, Strays: 1},
		"no post": {},
	} {
		assert.ErrorContains(t, rep.verdict(), name)
	}
}

func TestFollowGraph(t *testing.T) {
	t.Parallel()
	graph := followGraph(20, 19)
	require.Equal(t, graph, followGraph(20, 19))
	for user, followers := range graph {
		assert.Len(t, followers, max(1, 19/(user+1)))
		seen := map[int]bool{user: true}
		for _, follower := range followers {
			assert.False(t, seen[follower], "%d follows %d twice, or is the same", follower, user)
			seen[follower] = true
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	fine := Options{URL: "http://127.0.0.1:8080/graphql", Duration: time.Second, Users: 2, Followers: 1, Subscribers: 1, PostRate: 1}
	require.NoError(t, fine.Validate())
	for name, c := range map[string]struct {
		change func(*Options)
		says   string // "" if the options are allowed
	}{
		"localhost":          {func(o *Options) { o.URL = "http://localhost/graphql" }, ""},
		"IPv6":               {func(o *Options) { o.URL = "http://[::1]:8080/graphql" }, ""},
		"another machine":    {func(o *Options) { o.URL = "http://192.0.2.1/graphql" }, "--allow-remote"},
		"looks like ours":    {func(o *Options) { o.URL = "http://localhost.example.com/graphql" }, "--allow-remote"},
		"all interfaces":     {func(o *Options) { o.URL = "http://0.0.0.0/graphql" }, "--allow-remote"},
		"allowed":            {func(o *Options) { o.URL, o.AllowRemote = "https://192.0.2.1/graphql", true }, ""},
		"no URL":             {func(o *Options) { o.URL = "127.0.0.1:8080" }, "--url"},
		"a socket's URL":     {func(o *Options) { o.URL = "ws://127.0.0.1:8080/graphql" }, "--url"},
		"too long":           {func(o *Options) { o.Duration = time.Hour }, "--duration"},
		"everybody and more": {func(o *Options) { o.Followers = 2 }, "--followers"},
		"too many":           {func(o *Options) { o.Subscribers, o.Readers = 1e6, 1e6 }, "--subscribers"},
		"no rate":            {func(o *Options) { o.PostRate = 0 }, "--posts-per-second"},
		"a scenario":         {func(o *Options) { o.Scenario, o.Rate = "celebrity", 5 }, ""},
		"no such scenario":   {func(o *Options) { o.Scenario, o.Rate = "quiet", 5 }, "one of celebrity, conversations, follow-storm, hot-spot, login-storm, mixed, read-heavy"},
		"a still scenario":   {func(o *Options) { o.Scenario = "mixed" }, "--rate is 0"},
		"a hot spot":         {func(o *Options) { o.Scenario, o.Rate, o.Clients = "hot-spot", 5, 300 }, ""},
		"its highest rate":   {func(o *Options) { o.Find, o.Scenario, o.Rate, o.P99 = true, "hot-spot", 5, time.Second }, "--scenario hot-spot"},
		"a mix":              {func(o *Options) { o.Scenario, o.Rate, o.Mix = "mixed", 5, map[string]int{"reads": 9, "replies": 1} }, ""},
		"a mix alone":        {func(o *Options) { o.Mix = map[string]int{"reads": 9} }, "--mix has the operations of a --scenario"},
		"a mix of nothing":   {func(o *Options) { o.Scenario, o.Rate, o.Mix = "mixed", 5, map[string]int{"reads": 0} }, "at least one"},
		"a mix of more":      {func(o *Options) { o.Scenario, o.Rate, o.Mix = "mixed", 5, map[string]int{"likes": 1} }, "--mix has likes=1"},
		"clients alone":      {func(o *Options) { o.Clients = 5 }, "--clients are those of a --scenario"},
		"a search":           {func(o *Options) { o.Find, o.Rate, o.P99, o.Plot = true, 5, time.Second, "a.svg" }, ""},
		"for no latency":     {func(o *Options) { o.Find, o.Rate = true, 5 }, "--p99"},
		"for a slow one":     {func(o *Options) { o.Find, o.Rate, o.P99 = true, 5, time.Minute }, "--p99"},
		"a latency alone":    {func(o *Options) { o.P99 = time.Second }, "--find"},
		"a plot alone":       {func(o *Options) { o.Plot = "a.svg" }, "--find"},
		"another picture":    {func(o *Options) { o.Find, o.Rate, o.P99, o.Plot = true, 5, time.Second, "a.png" }, ".svg"},
		"a model":            {func(o *Options) { o.Model, o.Followers = true, 40 }, ""},
		"a model's search":   {func(o *Options) { o.Model, o.Scenario, o.Rate = true, "mixed", 5 }, "--model has a load of its own"},
		"a sizing":           {func(o *Options) { o.Model, o.For, o.Assume = true, 1e8, map[string]float64{"posts": 2} }, ""},
		"of no model":        {func(o *Options) { o.For = 1e8 }, "give --model too"},
		"for nobody":         {func(o *Options) { o.Model, o.For = true, -1 }, "--for is -1: it must be 1 to 10000000000"},
		"no such assumption": {func(o *Options) { o.Model, o.For, o.Assume = true, 1, map[string]float64{"likes": 1} }, "--assume likes is not known: it must be one of active,"},
		"for no size":        {func(o *Options) { o.Model, o.Assume = true, map[string]float64{"posts": 2} }, "--assume is for --for"},
		"kept, for no size":  {func(o *Options) { o.Model, o.Constants = true, "a.json" }, "--constants are for --for"},
		"workers alone":      {func(o *Options) { o.WorkerMetrics = []string{"http://localhost"} }, "--worker-metrics are for --model"},
		"two outputs":        {func(o *Options) { o.JSON, o.Compare = true, "a.json" }, "--compare"},
	} {
		t.Run(name, func(t *testing.T) {
			o := fine
			c.change(&o)
			if c.says == "" {
				require.NoError(t, o.Validate())
				return
			}
			require.ErrorContains(t, o.Validate(), c.says)
		})
	}
}

func TestFloors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	latencies, err := floor.Broadcast(t.Context(), []int{3, 1, 2}, 400)
	require.NoError(t, err)
	require.Greater(t, len(latencies), 3)
	latencies, elapsed, err := floor.Pages(t.Context(), timelineQuery, 2, 4000)
	require.NoError(t, err)
	require.NotEmpty(t, latencies)
	require.Positive(t, elapsed)
}

func TestPrint(t *testing.T) {
	t.Parallel()
	rep := &report{
		URL: "http://127.0.0.1/graphql", Users: 2, Follows: 1, Subscribers: 3, Seconds: 1.5, Interrupted: true,
		Posts: series{Count: 3, PerSecond: 2, P50: 1, P90: 2, P99: 3, Max: 4}, Missing: 7,
		Errors: map[string]int{"TIMEOUT": 2, "INTERNAL": 1},
	}
	var text, encoded bytes.Buffer
	require.NoError(t, rep.print(&text, false))
	require.Contains(t, text.String(), "2 users, 1 follows, 3 subscriptions, 1.5 s, interrupted")
	require.Contains(t, text.String(), "posts                      3         2.0      1.00      2.00      3.00      4.00")
	require.Contains(t, text.String(), "7 missing, 0 doubled")
	require.Contains(t, text.String(), "errors: 1 INTERNAL, 2 TIMEOUT")
	require.NotContains(t, text.String(), "floor")

	require.NoError(t, rep.print(&encoded, true))
	var back report
	require.NoError(t, json.Unmarshal(encoded.Bytes(), &back))
	require.Equal(t, *rep, back)

	require.Error(t, rep.print(brokenWriter{}, false))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

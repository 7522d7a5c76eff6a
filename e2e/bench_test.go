package e2e

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/storage/storagetest"
)

// The load generator measures a real server, and no event is silently missing.
func TestBench(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	p := start(t, nil, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0")
	load := command(t.Context(), nil, "bench", "--json", "--url="+p.url, "--duration=2s",
		"--users=6", "--followers=5", "--subscribers=9", "--posts-per-second=5")
	load.Stderr = t.Output()
	out, err := load.Output()
	require.NoError(t, err, "%s", out)
	var report struct {
		Subscribers, Missing, Doubled, Strays int

		Posts, Deliveries, Reads struct{ Count int }
		DeliveryFloor, ReadFloor struct{ Count int }
		Errors                   map[string]int
	}
	require.NoError(t, json.Unmarshal(out, &report))
	require.Equal(t, 9, report.Subscribers)
	require.Zero(t, report.Missing+report.Doubled+report.Strays)
	require.Empty(t, report.Errors)
	require.Positive(t, report.Posts.Count)
	require.Greater(t, report.Deliveries.Count, report.Posts.Count)
	require.Positive(t, report.Reads.Count)
	require.Positive(t, report.DeliveryFloor.Count)
	require.Positive(t, report.ReadFloor.Count)
}

// The operations of each scenario succeed. A saved result can be compared with. A search
// reports if no rate meets the target.
func TestBenchScenarios(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	p := start(t, []string{"TIDELINE_RATE_LIMIT=off"}, "--data-dir="+t.TempDir(), "--addr=127.0.0.1:0")
	kept := filepath.Join(t.TempDir(), "run.json")
	bench := func(args ...string) (string, error) {
		load := command(t.Context(), nil, append([]string{"bench", "--url=" + p.url + "/graphql", "--duration=1s", "--users=4", "--followers=3",
			"--subscribers=4"}, args...)...)
		load.Stderr = t.Output()
		out, err := load.Output()
		return string(out), err
	}
	slow := regexp.MustCompile(`errors: \d+ TIMEOUT\n`) // happens on a busy machine
	for scenario, c := range map[string]struct{ kind, rate string }{
		"read-heavy": {"timeline reads", "20"}, "celebrity": {"timeline reads", "20"}, "follow-storm": {"follows", "20"}, "hot-spot": {"p99 on one, times that on all", "20"},
		"login-storm": {"log-ins", "2"}, // hashing a password is slow
	} {
		out, err := bench("--scenario="+scenario, "--rate="+c.rate)
		require.NoError(t, err, out)
		require.Contains(t, out, c.kind)
		require.NotContains(t, slow.ReplaceAllString(out, ""), "errors:")
	}
	out, err := bench("--scenario=mixed", "--rate=20", "--save="+kept)
	require.NoError(t, err, out)
	out, err = bench("--scenario=mixed", "--rate=20", "--compare="+kept)
	require.NoError(t, err, out)
	require.Contains(t, out, "timeline reads p99 ms")
	out, err = bench("--find", "--p99=1ms", "--scenario=login-storm", "--rate=2", "--plot="+kept+".svg") // hashing a password takes longer
	require.Error(t, err)
	require.Contains(t, out, "highest rate that holds 1 ms: 0.0 operations per second")
	require.FileExists(t, kept+".svg")
}

// A model of an embedded server contains the constants that the server and its database file
// reveal, and names the unknown ones. It can be computed again from its saved file.
func TestBenchModel(t *testing.T) {
	storagetest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	p := start(t, []string{"TIDELINE_RATE_LIMIT=off"}, "--data-dir="+dir, "--addr=127.0.0.1:0")
	kept := filepath.Join(t.TempDir(), "model.json")
	bench := func(args ...string) (string, error) {
		load := command(t.Context(), nil, append([]string{"bench", "--model", "--url=" + p.url + "/graphql", "--data-dir=" + dir}, args...)...)
		load.Stderr = t.Output()
		out, err := load.Output()
		return string(out), err
	}
	out, err := bench("--json", "--duration=1s", "--users=6", "--subscribers=12", "--for=1000000", "--save="+kept)
	require.NoError(t, err, out)
	type work struct{ Server, Worker, SQL, Redis *float64 }
	var model struct {
		Constants struct {
			Page, Post, Push                              work
			PageBytes, EventBytes, UserRowBytes           *float64
			PostRowBytes, FollowRowBytes, InboxEntryBytes *float64
			Unknown                                       []string
		}
		Sizing struct {
			Reads      float64
			Servers    *float64
			Processors work
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &model))
	c := model.Constants
	for _, figure := range []*float64{c.Page.Server, c.Post.Server, c.PageBytes, c.EventBytes, c.UserRowBytes, c.PostRowBytes, c.FollowRowBytes, model.Sizing.Servers} {
		require.NotNil(t, figure, out)
		require.Positive(t, *figure, out)
	}
	for _, figure := range []*float64{c.Page.Worker, c.Page.SQL, c.Page.Redis, c.InboxEntryBytes, model.Sizing.Processors.SQL} {
		require.Nil(t, figure, "it is inside the server: %s", out)
	}
	require.NotEmpty(t, c.Unknown)
	require.Positive(t, model.Sizing.Reads)

	p.stop() // the server is not needed: the constants are in the file
	out, err = bench("--constants="+kept, "--for=2000000", "--assume=reads=40,posts=1")
	require.NoError(t, err, out)
	require.Contains(t, out, "| what breaks, in this order | at users | then |")
	require.Contains(t, out, "| processors in use: PostgreSQL | not known |")
}

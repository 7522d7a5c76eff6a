package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"tideline/server"
	"tideline/storage/storagetest"
)

// start runs a Tideline with everything inside in this process, until stop is called or the test ends. It returns the
// base URL.
func start(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	var c server.Config
	parser, err := kong.New(&c, kong.Vars(server.Vars()))
	require.NoError(t, err)
	_, err = parser.Parse(append(args, "--addr=127.0.0.1:0", "--log-level=warn"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	banner, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := server.Run(ctx, c, server.Serve, server.Console{Out: out, Log: t.Output()})
		out.Close()
		ended <- err
		close(ended)
	}()
	stop = func() {
		cancel()
		require.NoError(t, <-ended) // nil if it was called before
	}
	t.Cleanup(stop)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for lines := bufio.NewScanner(banner); url == ""; url = address.FindString(lines.Text()) {
		require.True(t, lines.Scan(), "the server ended before it announced itself")
	}
	go func() { _, _ = io.Copy(io.Discard, banner) }()
	return url, stop
}

// bench runs the load generator with these arguments. It returns what it prints.
func bench(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var c commandLine
	parser, err := kong.New(&c, options()...)
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = c.run(t.Context(), &out, t.Output())
	return out.String(), err
}

// A server that is not on this machine is not loaded unless a flag says so.
func TestLoadOnSomebodyElse(t *testing.T) {
	t.Parallel()
	_, err := bench(t, "--url=http://192.0.2.1/graphql")
	require.ErrorContains(t, err, "--allow-remote")
}

// The tests below do not run beside others: a model measures what this process uses.

// The load generator measures a real server, and no event is silently missing.
func TestBench(t *testing.T) {
	storagetest.Long(t)
	url, _ := start(t, "--data-dir="+t.TempDir())
	out, err := bench(t, "--json", "--url="+url, "--duration=2s", "--users=6", "--followers=5", "--subscribers=9", "--posts-per-second=5")
	require.NoError(t, err, out)
	var report struct {
		Subscribers, Missing, Doubled, Strays int

		Posts, Deliveries, Reads struct{ Count int }
		DeliveryFloor, ReadFloor struct{ Count int }
		Errors                   map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
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
	url, _ := start(t, "--data-dir="+t.TempDir(), "--rate-limit=off")
	kept := filepath.Join(t.TempDir(), "run.json")
	run := func(args ...string) (string, error) {
		return bench(t, append(args, "--url="+url+"/graphql", "--duration=1s", "--users=4", "--followers=3", "--subscribers=4")...)
	}
	slow := regexp.MustCompile(`errors: \d+ TIMEOUT\n`) // happens on a busy machine
	for scenario, c := range map[string]struct{ kind, rate string }{
		"read-heavy": {"timeline reads", "20"}, "celebrity": {"timeline reads", "20"}, "follow-storm": {"follows", "20"}, "hot-spot": {"p99 on one, times that on all", "20"},
		"conversations": {"timeline reads", "20"},
		"login-storm":   {"log-ins", "2"}, // hashing a password is slow
	} {
		out, err := run("--scenario="+scenario, "--rate="+c.rate)
		require.NoError(t, err, out)
		require.Contains(t, out, c.kind)
		require.NotContains(t, slow.ReplaceAllString(out, ""), "errors:")
	}
	out, err := run("--scenario=mixed", "--rate=20", "--mix=replies=1,reposts=1")
	require.NoError(t, err, out)
	require.Contains(t, out, "replies")
	require.Contains(t, out, "reposts")
	require.NotContains(t, slow.ReplaceAllString(out, ""), "errors:")
	out, err = run("--scenario=mixed", "--rate=20", "--save="+kept)
	require.NoError(t, err, out)
	out, err = run("--scenario=mixed", "--rate=20", "--compare="+kept)
	require.NoError(t, err, out)
	require.Contains(t, out, "timeline reads p99 ms")
	out, err = run("--find", "--p99=1ms", "--scenario=login-storm", "--rate=2", "--plot="+kept+".svg") // hashing a password takes longer
	require.Error(t, err)
	require.Contains(t, out, "highest rate that holds 1 ms: 0.0 operations per second")
	require.FileExists(t, kept+".svg")
}

// A model of an embedded server contains the constants that the server and its database file
// reveal, and names the unknown ones. It can be computed again from its saved file.
func TestBenchModel(t *testing.T) {
	storagetest.Long(t)
	dir := t.TempDir()
	url, stop := start(t, "--data-dir="+dir, "--rate-limit=off")
	kept := filepath.Join(t.TempDir(), "model.json")
	run := func(args ...string) (string, error) {
		return bench(t, append(args, "--model", "--url="+url+"/graphql", "--data-dir="+dir)...)
	}
	out, err := run("--json", "--duration=1s", "--users=6", "--subscribers=12", "--for=1000000", "--save="+kept)
	require.NoError(t, err, out)
	type work struct{ Server, Worker, SQL, Redis *float64 }
	var model struct {
		Constants struct {
			Page, Post, Reply, Repost, Push               work
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
	for _, figure := range []*float64{c.Page.Server, c.Post.Server, c.Reply.Server, c.Repost.Server, c.PageBytes, c.EventBytes, c.UserRowBytes, c.PostRowBytes, c.FollowRowBytes, model.Sizing.Servers} {
		require.NotNil(t, figure, out)
		require.Positive(t, *figure, out)
	}
	for _, figure := range []*float64{c.Page.Worker, c.Page.SQL, c.Page.Redis, c.InboxEntryBytes, model.Sizing.Processors.SQL} {
		require.Nil(t, figure, "it is inside the server: %s", out)
	}
	require.NotEmpty(t, c.Unknown)
	require.Positive(t, model.Sizing.Reads)

	stop() // the server is not needed: the constants are in the file
	out, err = run("--constants="+kept, "--for=2000000", "--assume=reads=40,posts=1")
	require.NoError(t, err, out)
	require.Contains(t, out, "| what breaks, in this order | at users | then |")
	require.Contains(t, out, "| processors in use: PostgreSQL | not known |")
}

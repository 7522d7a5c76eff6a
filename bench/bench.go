// Package bench is the load generator behind "tideline bench". It is a client of
// a running Tideline: but for --model it knows the public API, and no package of the
// server.
//
// A run signs up users, has them follow each other (the user of rank k has 1/k of
// the followers of the first), opens WebSocket subscriptions, and then, for a given
// time, creates posts at a given rate while readers read timelines without a pause.
// It measures, on the client's side of loopback or network:
//
//   - live latency: from the start of a createPost call until one subscriber has
//     read the event, for every delivery; the call's own time is part of it;
//   - the time of createPost and of reading the first 20 entries of a timeline;
//   - deliveries, posts and reads per second over the time of the load;
//   - errors: a live event that is missing, doubled, or for a user who does not
//     follow the author.
//
// Beside it stands a measured floor, taken right after with the same client code:
// an in-process WebSocket server that broadcasts a prepared message as large as an
// event, each time to as many sockets as a post had recipients, and an HTTP server
// that answers a page as large as a timeline's. The ratio to the floor says more
// than the figures, which depend on the machine: client and server share it, and
// the readers compete with the deliveries.
//
// With --scenario, operations of one kind of day arrive in place of that load, at random
// moments and --rate a second on the average, whether or not earlier ones have been
// answered; an operation's time counts from the moment at which it was due. With --find,
// steps of --duration at rising rates look for the highest one at which of each kind of
// operation 99 in 100 are done within --p99; a failed one is done never. A --scenario is
//
//   - mixed: nine pages are read for each post of any user;
//   - read-heavy: ninety-nine for each;
//   - celebrity: nine for each post of the most followed user;
//   - login-storm: users log in, read a page and subscribe;
//   - follow-storm: users follow and unfollow the most followed one, who posts beside,
//     while others read;
//   - hot-spot: so they do, and like a post of theirs, first; then the same is spread out over
//     all users and a post of each. It compares the two.
//
// With --clients, so many clients do the operations without a pause in place of --rate.
//
// Except for the last three, live deliveries count as operations too, from the moment at
// which their post was due.
//
// With --model it measures what things cost instead: what the processes of the server, of its
// workers and stores use while users read, post, connect and are told, and the bytes that
// they leave. From that it works out what --for so many users takes: see bench/capacity.
// This alone looks past the API, at metrics and stores.
//
// Bounds: the load ends by itself after Options.Duration, the run within half a
// minute after that; --model has eight steps, each of at most Options.Duration; --find makes at most 30 steps, each with at most a minute to come to
// rest; signing up takes as long as the server's rate limits make it. Memory grows by
// about 10 bytes per delivery, post and read. A run leaves its users and posts behind,
// under handles of their own, so use an instance whose data do not matter.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"tideline/bench/capacity"
	"tideline/bench/client"
)

// Options configure a run; the tags make them flags of the command line.
type Options struct {
	URL         string        `name:"url" env:"-" default:"http://127.0.0.1:8080/graphql" help:"API of the Tideline to load; without a path, /graphql."`
	AllowRemote bool          `env:"-" help:"Load a server on another machine. It must be yours."`
	Duration    time.Duration `env:"-" default:"30s" help:"How long to load, 1s to 10m."`
	Users       int           `env:"-" default:"50" help:"Users to sign up, 2 to 10000."`
	Followers   int           `env:"-" default:"40" help:"Followers of the most followed user, fewer than there are users; the others have fewer, as in a real network."`
	Subscribers int           `env:"-" default:"100" help:"Live connections, shared out among the users, 1 to 10000."`
	PostRate    float64       `name:"posts-per-second" env:"-" default:"10" help:"Posts per second, 0.1 to 1000."`
	Readers     int           `env:"-" default:"1" help:"Readers that read timelines without a pause, 0 to 1000."`

	Scenario string        `env:"-" help:"Load by the operations of a kind of day, which arrive whether or not earlier ones are answered: mixed, read-heavy, celebrity, login-storm, follow-storm or hot-spot. Without it, posts and readers as above."`
	Rate     float64       `env:"-" default:"20" help:"Operations per second of the scenario, 1 to 100000; --find begins with it."`
	Clients  int           `env:"-" help:"In place of --rate: clients of the scenario, each of which begins the next operation when the last one is answered, 1 to 2000."`
	Find     bool          `env:"-" help:"Find the highest rate of the scenario, mixed by itself, that holds --p99. Each step takes --duration."`
	P99      time.Duration `name:"p99" env:"-" placeholder:"200ms" help:"With --find: the time in which 99 of 100 operations of each kind must be done, 1ms to 10s."`
	Plot     string        `env:"-" placeholder:"FILE.svg" help:"With --find: draw the latency at each rate into this file; beside --compare, also what it was."`
	Save     string        `env:"-" placeholder:"FILE.json" help:"Keep the result in this file."`
	Compare  string        `env:"-" placeholder:"FILE.json" help:"Print the result beside one that --save kept."`
	JSON     bool          `name:"json" env:"-" help:"Print the report as JSON."`

	Model         bool               `env:"-" help:"Measure what a page, a post, a push, a live delivery and a connection cost, in processor time, memory and bytes: in steps of at most --duration. Everybody follows the first user. Give it the settings of the server, to look into its stores, and the server --rate-limit=off."`
	WorkerMetrics []string           `env:"-" placeholder:"URL" help:"With --model: the /metrics of workers that are processes of their own; without, those inside the server count as the server."`
	For           float64            `env:"-" placeholder:"USERS" help:"With --model: work out what so many users take, 1 to 10000000000."`
	Assume        map[string]float64 `env:"-" mapsep:"," placeholder:"NAME=NUMBER,…" help:"With --for: other assumptions than these: ${assumptions}."`
	Constants     string             `env:"-" placeholder:"FILE.json" help:"With --for: take the constants that --model kept by --save, and measure nothing."`
}

// openLoop reports whether operations arrive by themselves.
func (o Options) openLoop() bool { return o.Find || o.Scenario != "" }

// Validate names every option that is out of bounds, with its bounds.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		check(false, "--url is %q: it must be http:// or https://, a host and a path", o.URL)
	} else {
		check(o.AllowRemote || isLoopback(u.Hostname()),
			"--url is on %s, which is not this machine: a load test of a server that is not yours is an attack; --allow-remote allows it", u.Hostname())
	}
	check(o.Duration >= time.Second && o.Duration <= 10*time.Minute, "--duration is %v: it must be 1s to 10m", o.Duration)
	check(o.Users >= 2 && o.Users <= 10_000, "--users is %d: it must be 2 to 10000", o.Users)
	check(o.Model || o.Followers >= 1 && o.Followers < o.Users, "--followers is %d: it must be 1 to %d, one fewer than there are users", o.Followers, o.Users-1)
	check(o.Subscribers >= 1 && o.Subscribers <= 10_000, "--subscribers is %d: it must be 1 to 10000", o.Subscribers)
	check(o.PostRate >= 0.1 && o.PostRate <= 1000, "--posts-per-second is %v: it must be 0.1 to 1000", o.PostRate)
	check(o.Readers >= 0 && o.Readers <= 1000, "--readers is %d: it must be 0 to 1000", o.Readers)
	_, known := scenarios[o.Scenario]
	check(known || o.Scenario == "", "--scenario is %q: it must be one of %s", o.Scenario, strings.Join(slices.Sorted(maps.Keys(scenarios)), ", "))
	check(!o.openLoop() || o.Rate >= minRate && o.Rate <= maxRate, "--rate is %v: it must be %d to %d", o.Rate, minRate, maxRate)
	check(o.Clients >= 0 && o.Clients <= underWay, "--clients is %d: it must be 1 to %d", o.Clients, underWay)
	check(o.Clients == 0 || o.Scenario != "" && !o.Find, "--clients are those of a --scenario without --find, which looks for a rate")
	check(!o.Find || o.Scenario != hotSpot, "--scenario hot-spot compares two loads at one rate: it does not go with --find")
	check(!o.Find || o.P99 >= time.Millisecond && o.P99 <= client.Timeout, "--p99 is %v: --find needs it, 1ms to %v", o.P99, client.Timeout)
	check(o.Find || o.P99 == 0, "--p99 is the latency for --find, which is not given")
	check(o.Find || o.Plot == "", "--plot draws what --find measures, which is not given")
	check(o.Plot == "" || strings.HasSuffix(o.Plot, ".svg"), "--plot is %q: it must end with .svg", o.Plot)
	check(o.Compare == "" || !o.JSON, "--compare prints a table: it does not go with --json")
	check(!o.Model || !o.openLoop(), "--model has a load of its own: it does not go with --scenario and --find")
	check(o.Model || o.For == 0, "--for works out a model: give --model too")
	check(o.Model || len(o.WorkerMetrics) == 0, "--worker-metrics are for --model, which is not given")
	check(o.For != 0 || len(o.Assume) == 0, "--assume is for --for, which is not given")
	check(o.For != 0 || o.Constants == "", "--constants are for --for, which is not given")
	if o.For != 0 {
		_, err := capacity.Assume(o.For, o.Assume)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isLoopback does not ask the resolver, because the address of a name may change.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Run makes a run and prints its report to out, its progress to progress. When ctx
// ends under load, the report covers the time until then, and says so. Errors:
// options that are not allowed; a file that cannot be read or written, before the load; a
// server that does not let the run begin; with --model, stores of another server, or a load
// that fails; after the report, live events that were missing,
// doubled or wrong, no post at all, or no rate that holds the latency.
func Run(ctx context.Context, o Options, inside Inside, out, progress io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Find && o.Scenario == "" {
		o.Scenario = "mixed"
	}
	if u, err := url.Parse(o.URL); err == nil && (u.Path == "" || u.Path == "/") { // it is a valid one
		u.Path = "/graphql"
		o.URL = u.String()
	}
	if o.Model {
		o.Followers = o.Users - 1
	}
	earlier, err := openFiles(o)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	r := newRun(o)
	defer r.client.Close()
	defer r.hangUp()

	result := &result{Scenario: o.Scenario}
	if o.Model {
		result.Model, err = r.model(ctx, inside, say)
	} else {
		err = r.measureLoad(ctx, result, say)
	}
	if err != nil {
		return err
	}
	if err := result.print(out, o.JSON); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if err := result.keep(o, earlier, out); err != nil {
		return err
	}
	return result.verdict()
}

// prepare signs up the users.
func (r *run) prepare(ctx context.Context, say func(string, ...any)) error {
	say("Signing up %d users …", r.options.Users)
	if err := r.populate(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return nil
}

// measureLoad is the load, with a scenario or without.
func (r *run) measureLoad(ctx context.Context, result *result, say func(string, ...any)) (err error) {
	if err := r.prepare(ctx, say); err != nil {
		return err
	}
	say("Opening %d subscriptions …", r.options.Subscribers)
	if err := r.subscribe(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if r.options.Scenario == hotSpot {
		if err := r.postToLike(ctx); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if r.options.openLoop() {
		result.Search = r.search(ctx, say)
		return nil
	}
	result.Report, err = r.measure(ctx, say)
	return err
}

// measure is the load without a scenario.
func (r *run) measure(ctx context.Context, say func(string, ...any)) (*report, error) {
	say("%g posts per second for %v. Ctrl-C ends it earlier.", r.options.PostRate, r.options.Duration)
	r.load(ctx)
	r.settle()
	report := r.report(ctx.Err() != nil)
	if ctx.Err() == nil {
		say("Measuring the floor …")
		if err := report.addFloor(ctx, r); err != nil {
			return nil, fmt.Errorf("measure the floor: %w", err)
		}
	}
	return report, nil
}

// Command bench loads a running Tideline as its users would, and reports. It is a client of that Tideline: except
// for --model it uses only the public API.
//
// It is a module of its own, so that neither the tideline program nor its go.mod contains a load generator. "make
// bench" builds and runs it.
//
// # Load
//
// A run signs up users and has them follow each other: the user of rank k has 1/k of the first user's
// followers. It opens WebSocket subscriptions. Then, for a given time, it creates posts at a given rate while
// readers read timelines without pause. It measures on the client's side:
//
//   - live latency: from the start of a createPost call until a subscriber has read the event, for every
//     delivery, including the call's own time;
//   - the time of createPost, and of reading the first 20 entries of a timeline;
//   - deliveries, posts and reads per second of the load;
//   - errors: live events that are missing, doubled, or sent to a user who does not follow the author.
//
// # Floor
//
// The report compares the figures with a floor that is measured right afterwards with the same client
// code. A WebSocket server in the same process broadcasts a prepared message of an event's size, each time
// to as many sockets as a post had recipients. An HTTP server answers a page of a timeline's size. The
// ratio to the floor says more than the figures, which depend on the machine: client and server share it,
// and readers compete with deliveries.
//
// # Scenarios
//
// With --scenario, operations arrive instead of that load: at random moments, --rate per second on average,
// whether or not earlier ones have been answered. An operation's time counts from the moment at which it was
// due. With --find, steps of --duration at different rates look for the highest rate at which 99 of 100
// operations of each kind are done within --p99. A failed operation counts as never done. The scenarios are:
//
//   - mixed: nine pages are read for each post of any user;
//   - read-heavy: ninety-nine pages for each post;
//   - celebrity: nine pages for each post of the most followed user;
//   - login-storm: users log in, read a page and subscribe;
//   - follow-storm: users follow and unfollow the most followed user, who also posts, while others read;
//   - conversations: nine pages for each post, a third of which are replies and a third reposts;
//   - hot-spot: the same as follow-storm, and users also like a post of the most followed user; then the same load is spread
//     over all users and a post of each. It compares the two.
//
// With --mix, the operations of a scenario are replaced by the given ones: reads=9,posts=1,replies=2,reposts=1.
//
// With --clients, that many clients do the operations without pause, instead of --rate. Except for
// login-storm, follow-storm and hot-spot, live deliveries count as operations too, from the moment at which their post was due.
//
// # Model
//
// With --model it measures costs instead: what the processes of the server, the workers and the
// stores use while users read, post, connect and receive events, and the bytes that they store.
// From that it computes what --for that many users needs; see bench/capacity. Only this mode uses
// metrics and stores besides the API.
//
// # Bounds
//
// The load ends after Options.Duration, and the run within half a minute after that. --model has eight steps,
// each of at most Options.Duration. --find makes at most 30 steps, each with at most a minute for outstanding
// deliveries. Signing up takes as long as the server's rate limits require. Memory grows by about 10 bytes
// per delivery, post and read. A run leaves its users and posts behind, under handles of their own, so use an
// instance whose data does not matter.
package main

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

// Options configure a run. The tags define flags of the command line.
type Options struct {
	URL         string        `name:"url" default:"http://127.0.0.1:8080/graphql" help:"API of the Tideline to load; without a path, /graphql."`
	AllowRemote bool          `help:"Load a server on another machine. It must be yours."`
	Duration    time.Duration `default:"30s" help:"How long to load, 1s to 10m."`
	Users       int           `default:"50" help:"Users to sign up, 2 to 10000."`
	Followers   int           `default:"40" help:"Followers of the most followed user, fewer than there are users; the others have fewer, as in a real network."`
	Subscribers int           `default:"100" help:"Live connections, shared out among the users, 1 to 10000."`
	PostRate    float64       `name:"posts-per-second" default:"10" help:"Posts per second, 0.1 to 1000."`
	Readers     int           `default:"1" help:"Readers that read timelines without a pause, 0 to 1000."`

	Scenario string         `help:"Load by the operations of a kind of day, which arrive whether or not earlier ones are answered: mixed, read-heavy, celebrity, conversations, login-storm, follow-storm or hot-spot. Without it, posts and readers as above."`
	Mix      map[string]int `mapsep:"," placeholder:"KIND=TIMES,…" help:"With --scenario: these operations in place of its own, each as often in relation to the others: reads, posts, replies and reposts."`
	Rate     float64        `default:"20" help:"Operations per second of the scenario, 1 to 100000; --find begins with it."`
	Clients  int            `help:"In place of --rate: clients of the scenario, each of which begins the next operation when the last one is answered, 1 to 2000."`
	Find     bool           `help:"Find the highest rate of the scenario, mixed by itself, that holds --p99. Each step takes --duration."`
	P99      time.Duration  `name:"p99" placeholder:"200ms" help:"With --find: the time in which 99 of 100 operations of each kind must be done, 1ms to 10s."`
	Plot     string         `placeholder:"FILE.svg" help:"With --find: draw the latency at each rate into this file; beside --compare, also what it was."`
	Save     string         `placeholder:"FILE.json" help:"Keep the result in this file."`
	Compare  string         `placeholder:"FILE.json" help:"Print the result beside one that --save kept."`
	JSON     bool           `name:"json" help:"Print the report as JSON."`

	Model         bool               `help:"Measure what a page, a post, a push, a live delivery and a connection cost, in processor time, memory and bytes: in steps of at most --duration. Everybody follows the first user. Name the stores of the server, to look into them, and give the server --rate-limit=off."`
	WorkerMetrics []string           `placeholder:"URL" help:"With --model: the /metrics of workers that are processes of their own; without, those inside the server count as the server."`
	For           float64            `placeholder:"USERS" help:"With --model: work out what so many users take, 1 to 10000000000."`
	Assume        map[string]float64 `mapsep:"," placeholder:"NAME=NUMBER,…" help:"With --for: other assumptions than these: ${assumptions}."`
	Constants     string             `placeholder:"FILE.json" help:"With --for: take the constants that --model kept by --save, and measure nothing."`
}

// openLoop reports whether operations arrive independently of answers.
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
	for name, times := range o.Mix {
		_, known := mixable[name]
		check(known && times >= 0 && times <= 1000, "--mix has %s=%d: it must be reads, posts, replies or reposts, each 0 to 1000", name, times)
	}
	check(len(o.Mix) == 0 || o.openLoop() && len(drawn(o.frequencies())) > 0, "--mix has the operations of a --scenario or of --find, at least one")
	check(len(o.Mix) == 0 || o.Scenario != hotSpot, "--scenario hot-spot has operations of its own: it does not go with --mix")
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

// isLoopback does not use the resolver, because the address of a name may change.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Run makes a run and prints its report to out and its progress to progress. If ctx ends during the load, the
// report covers the time until then and says so. Errors before the load: options that are not allowed; a file
// that cannot be read or written; a server that does not let the run begin. With --model: stores of another
// server, or a load that fails. After the report: live events that were missing, doubled or wrong; no post at
// all; no rate that holds the latency.
func Run(ctx context.Context, o Options, inside Inside, out, progress io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Find && o.Scenario == "" {
		o.Scenario = "mixed"
	}
	if u, err := url.Parse(o.URL); err == nil && (u.Path == "" || u.Path == "/") { // Validate has checked it
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

// measureLoad runs the load, with or without a scenario.
func (r *run) measureLoad(ctx context.Context, result *result, say func(string, ...any)) (err error) {
	if err := r.prepare(ctx, say); err != nil {
		return err
	}
	say("Opening %d subscriptions …", r.options.Subscribers)
	if err := r.subscribe(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if r.options.Scenario == hotSpot || r.options.talks() {
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

// measure runs the load without a scenario.
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

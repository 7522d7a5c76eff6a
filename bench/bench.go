// Package bench is the load generator behind "tideline bench". It is a client of
// a running Tideline and nothing else: it knows the public API, and no package
// of the server.
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
// Bounds: the load ends by itself after Options.Duration, the run within half a
// minute after that; signing up takes as long as the server's rate limits make it.
// Memory grows by about 10 bytes per delivery, post and read. A run leaves its
// users and posts behind, under handles of their own, so use an instance whose data
// do not matter. It does not find the highest rate that a server can serve; raise
// the rate until the latency grows.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// Options configure a run; the tags make them flags of the command line.
type Options struct {
	URL         string        `name:"url" env:"-" default:"http://127.0.0.1:8080/graphql" help:"API of the Tideline to load."`
	AllowRemote bool          `env:"-" help:"Load a server on another machine. It must be yours."`
	Duration    time.Duration `env:"-" default:"30s" help:"How long to load, 1s to 10m."`
	Users       int           `env:"-" default:"50" help:"Users to sign up, 2 to 10000."`
	Followers   int           `env:"-" default:"40" help:"Followers of the most followed user, fewer than there are users; the others have fewer, as in a real network."`
	Subscribers int           `env:"-" default:"100" help:"Live connections, shared out among the users, 1 to 10000."`
	PostRate    float64       `name:"posts-per-second" env:"-" default:"10" help:"Posts per second, 0.1 to 1000."`
	Readers     int           `env:"-" default:"1" help:"Readers that read timelines without a pause, 0 to 1000."`
	JSON        bool          `name:"json" env:"-" help:"Print the report as JSON."`
}

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
	check(o.Followers >= 1 && o.Followers < o.Users, "--followers is %d: it must be 1 to %d, one fewer than there are users", o.Followers, o.Users-1)
	check(o.Subscribers >= 1 && o.Subscribers <= 10_000, "--subscribers is %d: it must be 1 to 10000", o.Subscribers)
	check(o.PostRate >= 0.1 && o.PostRate <= 1000, "--posts-per-second is %v: it must be 0.1 to 1000", o.PostRate)
	check(o.Readers >= 0 && o.Readers <= 1000, "--readers is %d: it must be 0 to 1000", o.Readers)
	return errors.Join(errs...)
}

// isLoopback does not ask the resolver, because the address of a name may change.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Run makes a run and prints its report to out, its progress to progress. When ctx
// ends under load, the report covers the time until then, and says so. Errors:
// options that are not allowed; a server that does not let the run begin; after the
// report, live events that were missing, doubled or wrong, or no post at all.
func Run(ctx context.Context, o Options, out, progress io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	r := newRun(o)
	defer r.client.close()
	defer r.hangUp()

	say("Signing up %d users …", o.Users)
	if err := r.populate(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	say("Opening %d subscriptions …", o.Subscribers)
	if err := r.subscribe(ctx); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	say("%g posts per second for %v. Ctrl-C ends it earlier.", o.PostRate, o.Duration)
	r.load(ctx)
	r.settle()
	report := r.report(ctx.Err() != nil)
	if ctx.Err() == nil {
		say("Measuring the floor …")
		if err := report.addFloor(ctx, r); err != nil {
			return fmt.Errorf("measure the floor: %w", err)
		}
	}
	if err := report.print(out, o.JSON); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return report.verdict()
}

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/bench/capacity"
	"tideline/bench/ledger"
	"tideline/bench/meter"
	"tideline/storage"
)

// How often --model repeats what it measures, unless --duration ends it earlier.
const (
	modelPages = 5000
	modelSmall = 1500 // posts to one follower
	modelLarge = 600  // posts to all; more than fit into an inbox
	modelLive  = 150  // posts to all, one at a time, without and with subscribers
	warmPosts  = 3    // of each user, before measuring
	modelIdle  = 4 * time.Second
	modelHold  = 20 * time.Second // with open connections

	// modelSettled is the time after which the posts of the earlier steps are in no cursor of a
	// new subscription. A cursor names the posts of the last two minutes, and a real user does
	// not get so many in that time.
	modelSettled = 125 * time.Second
	// modelTrial is the --duration below which a run only tries out the command, and
	// does not wait for modelSettled.
	modelTrial = 5 * time.Second
)

// model is the result of --model.
type model struct {
	Constants *capacity.Constants `json:"constants"`
	Sizing    *capacity.Sizing    `json:"sizing,omitempty"` // with --for
	Breaks    []capacity.Break    `json:"breaks,omitempty"`
}

// Inside has the stores of the server, which --model examines besides the API. Stores is nil if they could
// not be opened; Why then says why.
type Inside struct {
	Stores *storage.Stores
	Why    string
}

// modeller measures constants with the users of a run.
type modeller struct {
	*run
	*meter.Meter
	c *capacity.Constants
}

// model reads the constants from a file of --save, or measures them, and computes the sizing.
func (r *run) model(ctx context.Context, inside Inside, say func(string, ...any)) (*model, error) {
	m := &model{}
	if r.options.Constants != "" {
		kept, err := readResult(r.options.Constants)
		if err == nil && kept.Model == nil {
			err = fmt.Errorf("%s was kept %s: it must be of --model", r.options.Constants, kept.kind())
		}
		if err != nil {
			return nil, fmt.Errorf("--constants: %w", err)
		}
		m.Constants = kept.Model.Constants
	} else {
		metrics, err := url.Parse(r.options.URL)
		if err != nil {
			return nil, err
		}
		metrics.Path, metrics.RawQuery = "/metrics", ""
		d := &modeller{r, &meter.Meter{
			HTTP: r.client.HTTP, Server: metrics.String(), Workers: r.options.WorkerMetrics, Stores: inside.Stores,
		}, &capacity.Constants{}}
		if d.Stores == nil {
			d.unknown("what SQL and Redis take: %s", inside.Why)
		}
		if err := d.measureConstants(ctx, say); err != nil {
			return nil, err
		}
		m.Constants = d.c
	}
	if r.options.For > 0 {
		a, err := capacity.Assume(r.options.For, r.options.Assume)
		if err != nil {
			return nil, err
		}
		m.Sizing, m.Breaks = new(capacity.Size(*m.Constants, a)), capacity.Breaks(*m.Constants, a)
	}
	return m, nil
}

func (m *model) print(out io.Writer) error {
	if err := m.Constants.Print(out); err != nil || m.Sizing == nil {
		return err
	}
	return m.Sizing.Print(out, m.Breaks)
}

func (d *modeller) unknown(format string, args ...any) {
	d.c.Unknown = append(d.c.Unknown, fmt.Sprintf(format, args...))
}

// measureConstants generates load step by step. Each figure measures the work of the processes during a step, without
// what they use when idle, divided by the number of operations.
func (d *modeller) measureConstants(ctx context.Context, say func(string, ...any)) error {
	d.c.Machine = fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	d.ledger = ledger.New(d.graph, 0) // there are no subscriptions yet
	d.subscription = uncounted(eventsQuery)
	if err := d.prepare(ctx, say); err != nil {
		return err
	}
	if err := d.SameStores(ctx, d.handle(0)); err != nil {
		return err
	}
	last := len(d.users) - 1
	say("Filling timelines …")
	for _, step := range []struct {
		n  int
		do func(n int) error
	}{
		{warmPosts * len(d.users), func(n int) error { return d.create(ctx, n%len(d.users), time.Now()) }},
		{len(d.users), func(n int) error { return d.page(ctx, n, timelineQuery) }}, // a user who reads is active from now on
		{len(d.users), func(n int) error { return d.mark(ctx, n) }},
	} {
		if _, err := d.times(ctx, preparing, step.n, step.do); err != nil {
			return fmt.Errorf("fill timelines: %w", err)
		}
	}
	if err := d.arrived(ctx); err != nil {
		return err
	}
	if err := d.Quiet(ctx); err != nil {
		return err
	}
	say("Nothing, for %v …", modelIdle)
	if err := d.measureIdle(ctx); err != nil {
		return err
	}

	say("Pages …")
	d.pageBytes, d.reads = 0, nil
	minus := func(v []float64) float64 { return v[0] - v[1] }
	readBy := func(query string) func(int) error {
		return func(int) error { return d.page(ctx, rand.IntN(len(d.users)), query) }
	}
	page, n, err := d.step(ctx, modelPages, readBy(uncounted(timelineQuery)))
	if err != nil {
		return fmt.Errorf("read pages: %w", err)
	}
	d.c.Page, d.c.PageBytes = d.known(page), new(float64(d.pageBytes)/float64(n))

	// Authors of small posts have the last ranks, with one follower each.
	small := func(n int) error { return d.create(ctx, last-n%max(1, len(d.users)/2), time.Now()) }
	large := func(int) error { return d.create(ctx, 0, time.Now()) }
	say("Posts to one follower …")
	few, pushedFew, err := d.posts(ctx, preparing, modelSmall, small)
	if err != nil {
		return err
	}
	say("Posts to %d followers …", len(d.graph[0]))
	many, pushedMany, err := d.posts(ctx, preparing, modelLarge, large)
	if err != nil {
		return err
	}
	followers := func(p posted) float64 { return p.pushed / p.posts }
	d.c.Push, d.c.Post = d.line(few, many, followers(pushedFew), followers(pushedMany))
	if err := d.measureConversations(ctx, say); err != nil {
		return err
	}

	say("Pages with the number of unread posts …") // there are many now
	counted, _, err := d.step(ctx, len(d.users), func(n int) error { return d.page(ctx, n, timelineQuery) })
	if err != nil {
		return fmt.Errorf("count unread posts: %w", err)
	}
	// Alternating, because the difference is small. All users have asked for the number before.
	plain, kept, err := d.inTurn(ctx, modelPages/2, readBy(uncounted(timelineQuery)), readBy(timelineQuery))
	if err != nil {
		return fmt.Errorf("read kept numbers of unread posts: %w", err)
	}
	d.c.Count, d.c.Unread = d.known(capacity.Each(minus, counted, plain)), d.known(capacity.Each(minus, kept, plain))

	return d.measureLive(ctx, say, small, large)
}

// measureConversations measures replies and reposts by authors with one follower, without their pushes.
func (d *modeller) measureConversations(ctx context.Context, say func(string, ...any)) error {
	if err := d.postToLike(ctx); err != nil {
		return fmt.Errorf("create posts: %w", err)
	}
	if err := d.Quiet(ctx); err != nil {
		return err
	}
	half := max(1, len(d.users)/2)
	author := func(n int) int { return len(d.users) - 1 - n%half }
	first := func(n int) int { return n / half % half } // so that nobody reposts a post twice
	for _, kind := range []struct {
		name string
		into *capacity.Work
		do   func(n int) error
	}{
		{replies, &d.c.Reply, func(n int) error { return d.reply(ctx, author(n), first(n)) }},
		{reposts, &d.c.Repost, func(n int) error { return d.repost(ctx, author(n), first(n)) }},
	} {
		say("%s …", kind.name)
		each, made, err := d.posts(ctx, preparing, modelSmall, kind.do)
		if err != nil {
			return err
		}
		*kind.into = d.known(capacity.Each(func(v []float64) float64 { return v[0] - made.pushed/made.posts*v[1] }, each, d.c.Push))
	}
	return nil
}

// measureLive opens the subscriptions and repeats the posts. The additional cost
// is the cost of the deliveries.
func (d *modeller) measureLive(ctx context.Context, say func(string, ...any), small, large func(int) error) error {
	say("Posts one after the other …")
	few, _, err := d.posts(ctx, 1, modelLive*3, small)
	if err != nil {
		return err
	}
	many, _, err := d.posts(ctx, 1, modelLive, large)
	if err != nil {
		return err
	}
	if d.options.Duration >= modelTrial {
		say("Waiting for %v, until no post is recent …", modelSettled)
		if err := meter.Pause(ctx, modelSettled); err != nil {
			return err
		}
	}
	say("Opening %d subscriptions …", d.options.Subscribers)
	before, err := d.Read(ctx)
	if err != nil {
		return err
	}
	if err := d.dial(ctx); err != nil {
		return err
	}
	after, err := d.Rested(ctx, modelIdle)
	if err != nil {
		return err
	}
	d.c.Connect = d.known(d.Each(before, after, d.options.Subscribers))
	if before.Resident != nil && after.Resident != nil && *after.Resident > *before.Resident {
		d.c.Connection = new((*after.Resident - *before.Resident) / float64(d.options.Subscribers))
	} else {
		d.unknown("the memory of a connection: the server's did not rise; give it more --subscribers")
	}
	if err := d.awaitHeard(ctx); err != nil {
		return err
	}
	if err := d.Quiet(ctx); err != nil {
		return err
	}
	before, err = d.Read(ctx)
	if err != nil {
		return err
	}
	if after, err = d.Rested(ctx, modelHold); err != nil {
		return err
	}
	// A result below the resolution of both readings and of Idle counts as 0.
	seconds, n := after.At.Sub(before.At).Seconds(), float64(d.options.Subscribers)
	d.c.Hold = capacity.Each(func(v []float64) float64 {
		if v[0] < float64(meter.Tick.Microseconds())*(2+seconds/modelIdle.Seconds()) {
			return 0
		}
		return v[0] / seconds / n
	}, d.Each(before, after, 1))
	d.Idle = capacity.Each(func(v []float64) float64 { return v[0] + n*v[1] }, d.Idle, d.c.Hold)
	say("Posts to one follower, live …")
	fewLive, told, err := d.posts(ctx, 1, modelLive*3, small)
	if err != nil {
		return err
	}
	say("Posts to %d followers, live …", len(d.graph[0]))
	lookUps := d.LookUpTime(ctx)
	manyLive, toldAll, err := d.posts(ctx, 1, modelLive, large)
	if err != nil {
		return err
	}
	if took := d.LookUpTime(ctx) - lookUps; took > 0 && toldAll.pushed > 0 {
		d.c.LookUp = new(float64(took.Microseconds()) / toldAll.pushed)
	}
	minus := func(v []float64) float64 { return v[0] - v[1] }
	one, all := capacity.Each(minus, fewLive, few), capacity.Each(minus, manyLive, many)
	delivery, none := d.line(one, all, told.told/told.posts, toldAll.told/toldAll.posts)
	// A first delivery costs the part that does not depend on the recipients, plus one recipient.
	d.c.Delivery, d.c.Wake = delivery, d.known(capacity.Each(func(v []float64) float64 { return max(0, v[0]+v[1]) }, none, delivery))
	if d.events > 0 {
		d.c.EventBytes = new(float64(d.eventBytes) / float64(d.events))
	}
	d.hangUp()
	if len(d.errs) > 0 {
		d.unknown("what %s cost, which came instead of events or of connections: the time of connecting and of deliveries has it", counts(d.errs))
	}
	say("Bytes of Redis and SQL …")
	scarce, err := d.Bytes(ctx, d.c)
	if len(scarce) > 0 {
		d.unknown("bytes a row where there are few rows; these are too high: %s", strings.Join(scarce, ", "))
	}
	return err
}

// line returns the slope of the line through two measurements at x and y, and its value at 0.
func (d *modeller) line(first, second capacity.Work, x, y float64) (slope, start capacity.Work) {
	if y-x < 0.5 {
		d.unknown("what a follower costs: the most followed user has too few more than the others; give more --users and --subscribers")
		return capacity.Work{}, capacity.Work{}
	}
	slope = capacity.Each(func(v []float64) float64 { return max(0, (v[1]-v[0])/(y-x)) }, first, second)
	start = capacity.Each(func(v []float64) float64 { return v[0] - x*v[1] }, first, slope)
	return slope, start
}

// known replaces negative figures by 0. The difference of two measurements may be negative.
func (d *modeller) known(w capacity.Work) capacity.Work {
	return capacity.Each(func(v []float64) float64 { return max(0, v[0]) }, w)
}

// times calls do up to n times, atOnce calls at a time, for at most --duration. It
// returns the number of calls.
func (d *modeller) times(ctx context.Context, atOnce, n int, do func(n int) error) (done int, err error) {
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	var failed atomic.Bool
	for end := time.Now().Add(d.options.Duration); done < n && ctx.Err() == nil && !failed.Load(); done++ {
		if done > 0 && time.Now().After(end) {
			break
		}
		n := done
		calls.Go(func() error {
			err := do(n)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return done, err
	}
	return done, ctx.Err()
}

// step measures n calls of do, and returns the cost of each.
func (d *modeller) step(ctx context.Context, n int, do func(n int) error) (each capacity.Work, done int, err error) {
	before, err := d.Read(ctx)
	if err != nil {
		return each, 0, err
	}
	if done, err = d.times(ctx, preparing, n, do); err != nil {
		return each, done, err
	}
	after, err := d.Read(ctx)
	return d.Each(before, after, done), done, err
}

// modelTurns is how often two alternating steps are repeated.
const modelTurns = 5

// inTurn measures two steps of n calls in alternating parts, so that changes of the machine's
// other load affect both equally.
func (d *modeller) inTurn(ctx context.Context, n int, one, other func(n int) error) (ofOne, ofOther capacity.Work, err error) {
	var ones, others []capacity.Work
	for range modelTurns {
		first, _, err := d.step(ctx, n/modelTurns, one)
		if err != nil {
			return ofOne, ofOther, err
		}
		second, _, err := d.step(ctx, n/modelTurns, other)
		if err != nil {
			return ofOne, ofOther, err
		}
		ones, others = append(ones, first), append(others, second)
	}
	mean := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x / modelTurns
		}
		return sum
	}
	return capacity.Each(mean, ones...), capacity.Each(mean, others...), nil
}

// posted has the number of posts of a step, with the pushes and events that they caused.
type posted struct{ posts, pushed, told float64 }

// posts measures the creation of posts until all of them have arrived.
func (d *modeller) posts(ctx context.Context, atOnce, n int, do func(n int) error) (each capacity.Work, p posted, err error) {
	first, told := len(d.postsMade()), d.events
	before, err := d.Read(ctx)
	if err != nil {
		return each, p, err
	}
	done, err := d.times(ctx, atOnce, n, do)
	if err != nil {
		return each, p, fmt.Errorf("create posts: %w", err)
	}
	if err := d.arrived(ctx); err != nil {
		return each, p, err
	}
	after, err := d.Read(ctx)
	if err != nil {
		return each, p, err
	}
	pushed, err := d.pushes(ctx, first)
	if err != nil {
		return each, p, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Each(before, after, done), posted{float64(done), float64(pushed), float64(d.events - told)}, nil
}

const receiptQuery = `query($id: ID!) { node(id: $id) { ... on Post { delivery { done pushed } } } }`

// receipt returns how many followers a post was pushed to, and whether the fan-out is done.
func (d *modeller) receipt(ctx context.Context, post madePost) (pushed int, done bool, err error) {
	var data struct {
		Node struct {
			Delivery *struct {
				Done   bool
				Pushed int
			}
		}
	}
	if _, err := d.client.Call(ctx, d.users[post.author].token, receiptQuery, map[string]any{"id": post.id}, &data); err != nil {
		return 0, false, fmt.Errorf("ask for a receipt: %w", err)
	}
	if data.Node.Delivery == nil {
		return 0, false, nil
	}
	return data.Node.Delivery.Pushed, data.Node.Delivery.Done, nil
}

// arrived waits until the last posts are fanned out and their events have arrived.
func (d *modeller) arrived(ctx context.Context) error {
	made := d.postsMade()
	for _, post := range made[max(0, len(made)-2*preparing):] {
		for end := time.Now().Add(rest); ; {
			_, done, err := d.receipt(ctx, post)
			if err != nil {
				return err
			}
			if done {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("a post was not fanned out in %v", rest)
			}
			if err := meter.Pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	d.drain(arrival)
	return nil
}

// pushes returns the sum of the pushes of all posts from index first.
func (d *modeller) pushes(ctx context.Context, first int) (total int, err error) {
	for _, post := range d.postsMade()[first:] {
		pushed, _, err := d.receipt(ctx, post)
		if err != nil {
			return 0, err
		}
		total += pushed
	}
	return total, nil
}

// mark marks a user's whole timeline as read.
func (d *modeller) mark(ctx context.Context, user int) error {
	var data struct {
		Timeline struct{ Edges []struct{ Cursor string } }
	}
	if _, err := d.client.Call(ctx, d.users[user].token, `query { timeline(first: 1) { edges { cursor } } }`, nil, &data); err != nil {
		return err
	}
	if len(data.Timeline.Edges) == 0 {
		return nil
	}
	_, err := d.client.Call(ctx, d.users[user].token, `mutation($input: MarkTimelineReadInput!) { markTimelineRead(input: $input) { unreadCount } }`,
		map[string]any{"input": map[string]string{"upTo": data.Timeline.Edges[0].Cursor}}, &struct{}{})
	return err
}

func (d *modeller) page(ctx context.Context, user int, query string) error {
	size, err := d.client.Call(ctx, d.users[user].token, query, nil, &struct{}{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pageBytes += size
	return err
}

func (d *modeller) measureIdle(ctx context.Context) error {
	before, err := d.Read(ctx)
	if err != nil {
		return err
	}
	after, err := d.Rested(ctx, modelIdle)
	if err != nil {
		return err
	}
	seconds := after.At.Sub(before.At).Seconds()
	d.Idle = capacity.Each(func(v []float64) float64 { return v[0] / seconds }, d.Each(before, after, 1))
	d.c.Idle = d.Idle
	if d.Idle.Server == nil {
		d.unknown("processor time of the server: its /metrics do not tell")
	}
	if d.Idle.Worker == nil {
		d.unknown("processor time of workers apart: --worker-metrics names none, so they are taken to be inside the server, in whose time theirs is")
	}
	if d.Idle.SQL == nil {
		d.unknown("processor time of SQL: SQLite is inside the server, in whose time it is; of PostgreSQL it can be read on its own machine alone")
	}
	if d.Idle.Redis == nil {
		d.unknown("processor time and memory of Redis: it is inside the server, in whose figures it is")
	}
	return nil
}

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tideline/bench/capacity"
	"tideline/storage"
	"tideline/timeline"
)

// How often --model does what it measures, unless --duration ends it before.
const (
	modelPages  = 5000
	modelSmall  = 1500 // posts to one follower
	modelLarge  = 600  // posts to all; more than an inbox has room for
	modelLive   = 150  // of each, once subscribers are there
	warmPosts   = 3    // of each user before
	modelSample = 200_000
	modelIdle   = 4 * time.Second
	fewRows     = 1000 // of a table: with fewer, half-empty pages make each too large
)

// model is the result of --model.
type model struct {
	Constants *capacity.Constants `json:"constants"`
	Sizing    *capacity.Sizing    `json:"sizing,omitempty"` // with --for
	Breaks    []capacity.Break    `json:"breaks,omitempty"`
}

// spent is what processes have used until now: time in µs, and the server's memory.
type spent struct {
	capacity.Work
	resident capacity.Figure
	at       time.Time
}

// Inside is what --model looks into beside the API: the stores of the server. They are nil
// where they could not be opened; Why says so then.
type Inside struct {
	Stores *storage.Stores
	Why    string
}

// modeller measures constants with a run's users.
type modeller struct {
	*run
	stores *storage.Stores // nil: no look inside
	idle   capacity.Work   // µs a second
	c      *capacity.Constants
}

// model takes the constants from a file of --save, or measures them, and works out the
// sizing.
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
		d := &modeller{run: r, stores: inside.Stores, c: &capacity.Constants{}}
		if d.stores == nil {
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

// measureConstants loads step by step. Each figure is what the processes used meanwhile,
// less what they use when nothing happens, divided by how often it happened.
func (d *modeller) measureConstants(ctx context.Context, say func(string, ...any)) error {
	d.c.Machine = fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly))
	d.ledger = newLedger(d.graph, 0) // nobody listens yet
	d.subscription = uncounted(eventsQuery)
	if err := d.prepare(ctx, say); err != nil {
		return err
	}
	if err := d.sameStores(ctx); err != nil {
		return err
	}
	last := len(d.users) - 1
	say("Filling timelines …")
	for _, step := range []struct {
		n  int
		do func(n int) error
	}{
		{warmPosts * len(d.users), func(n int) error { return d.create(ctx, n%len(d.users), time.Now()) }},
		{len(d.users), func(n int) error { return d.page(ctx, n, timelineQuery) }}, // who reads is active from now on
		{len(d.users), func(n int) error { return d.mark(ctx, n) }},
	} {
		if _, err := d.times(ctx, step.n, step.do); err != nil {
			return fmt.Errorf("fill timelines: %w", err)
		}
	}
	if err := d.arrived(ctx); err != nil {
		return err
	}
	if err := d.quiet(ctx); err != nil {
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

	// The authors of small posts have one follower each, the last ranks.
	small := func(n int) error { return d.create(ctx, last-n%max(1, len(d.users)/2), time.Now()) }
	large := func(int) error { return d.create(ctx, 0, time.Now()) }
	say("Posts to one follower …")
	few, pushedFew, err := d.posts(ctx, modelSmall, small)
	if err != nil {
		return err
	}
	say("Posts to %d followers …", len(d.graph[0]))
	many, pushedMany, err := d.posts(ctx, modelLarge, large)
	if err != nil {
		return err
	}
	followers := func(p posted) float64 { return p.pushed / p.posts }
	d.c.Push, d.c.Post = d.line(few, many, followers(pushedFew), followers(pushedMany))

	say("Pages with the number of unread posts …") // of which there are many now
	plain, _, err := d.step(ctx, modelPages/2, readBy(uncounted(timelineQuery)))
	if err != nil {
		return fmt.Errorf("read pages: %w", err)
	}
	counted, _, err := d.step(ctx, modelPages/2, readBy(timelineQuery))
	if err != nil {
		return fmt.Errorf("count unread posts: %w", err)
	}
	d.c.Unread = d.known(capacity.Each(minus, counted, plain))

	return d.measureLive(ctx, say, small, large, few, many)
}

// measureLive opens the subscriptions, and repeats the posts: what they cost more is what the
// deliveries cost.
func (d *modeller) measureLive(ctx context.Context, say func(string, ...any), small, large func(int) error, few, many capacity.Work) error {
	say("Opening %d subscriptions …", d.options.Subscribers)
	before, err := d.read(ctx)
	if err != nil {
		return err
	}
	if err := d.dial(ctx); err != nil {
		return err
	}
	after, err := d.rested(ctx)
	if err != nil {
		return err
	}
	d.c.Connect = d.known(d.each(before, after, d.options.Subscribers))
	if before.resident != nil && after.resident != nil && *after.resident > *before.resident {
		d.c.Connection = new((*after.resident - *before.resident) / float64(d.options.Subscribers))
	} else {
		d.unknown("the memory of a connection: the server's did not rise; give it more --subscribers")
	}
	if err := d.awaitHeard(ctx); err != nil {
		return err
	}
	if err := d.quiet(ctx); err != nil {
		return err
	}
	before, err = d.read(ctx)
	if err != nil {
		return err
	}
	if after, err = d.rested(ctx); err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	held := d.each(before, after, 1) // beyond idleness
	n := float64(d.options.Subscribers)
	d.c.Hold = d.known(capacity.Each(func(v []float64) float64 { return v[0] / seconds / n }, held))
	d.idle = capacity.Each(func(v []float64) float64 { return v[0] + n*v[1] }, d.idle, d.c.Hold)
	say("Posts to one follower, live …")
	fewLive, told, err := d.posts(ctx, modelLive*5, small)
	if err != nil {
		return err
	}
	say("Posts to %d followers, live …", len(d.graph[0]))
	lookUps := d.lookUpTime(ctx)
	manyLive, toldAll, err := d.posts(ctx, modelLive, large)
	if err != nil {
		return err
	}
	if took := d.lookUpTime(ctx) - lookUps; took > 0 && toldAll.pushed > 0 {
		d.c.LookUp = new(float64(took.Microseconds()) / toldAll.pushed)
	}
	minus := func(v []float64) float64 { return v[0] - v[1] }
	one, all := capacity.Each(minus, fewLive, few), capacity.Each(minus, manyLive, many)
	delivery, none := d.line(one, all, told.told/told.posts, toldAll.told/toldAll.posts)
	// A first delivery is what is left without recipients, and one recipient.
	d.c.Delivery, d.c.Wake = delivery, d.known(capacity.Each(func(v []float64) float64 { return max(0, v[0]+v[1]) }, none, delivery))
	if d.events > 0 {
		d.c.EventBytes = new(float64(d.eventBytes) / float64(d.events))
	}
	d.hangUp()
	say("Bytes of Redis and SQL …")
	return d.measureBytes(ctx)
}

// line returns the slope and the value at 0 of the line through two measurements at x and y.
func (d *modeller) line(first, second capacity.Work, x, y float64) (slope, start capacity.Work) {
	if y-x < 0.5 {
		d.unknown("what a follower costs: the most followed user has too few more than the others; give more --users and --subscribers")
		return capacity.Work{}, capacity.Work{}
	}
	slope = capacity.Each(func(v []float64) float64 { return max(0, (v[1]-v[0])/(y-x)) }, first, second)
	start = capacity.Each(func(v []float64) float64 { return v[0] - x*v[1] }, first, slope)
	return slope, start
}

// known is the work, none of it below 0: the difference of two measurements may be.
func (d *modeller) known(w capacity.Work) capacity.Work {
	return capacity.Each(func(v []float64) float64 { return max(0, v[0]) }, w)
}

// times does something n times, several at once, for --duration at most. It returns how
// often it was done.
func (d *modeller) times(ctx context.Context, n int, do func(n int) error) (done int, err error) {
	var calls errgroup.Group
	calls.SetLimit(preparing)
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

// step measures something that is done n times, and returns what it costs each time.
func (d *modeller) step(ctx context.Context, n int, do func(n int) error) (each capacity.Work, done int, err error) {
	before, err := d.read(ctx)
	if err != nil {
		return each, 0, err
	}
	if done, err = d.times(ctx, n, do); err != nil {
		return each, done, err
	}
	after, err := d.read(ctx)
	return d.each(before, after, done), done, err
}

// posted is what a step of posts led to.
type posted struct{ posts, pushed, told float64 }

// posts measures posts, until all of them have arrived.
func (d *modeller) posts(ctx context.Context, n int, do func(n int) error) (each capacity.Work, p posted, err error) {
	first, told := len(d.postsMade()), d.events
	before, err := d.read(ctx)
	if err != nil {
		return each, p, err
	}
	done, err := d.times(ctx, n, do)
	if err != nil {
		return each, p, fmt.Errorf("create posts: %w", err)
	}
	if err := d.arrived(ctx); err != nil {
		return each, p, err
	}
	after, err := d.read(ctx)
	if err != nil {
		return each, p, err
	}
	pushed, err := d.pushes(ctx, first)
	if err != nil {
		return each, p, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.each(before, after, done), posted{float64(done), float64(pushed), float64(d.events - told)}, nil
}

const receiptQuery = `query($id: ID!) { node(id: $id) { ... on Post { delivery { done pushed } } } }`

// receipt returns how many followers a post was pushed to, and whether that was all.
func (d *modeller) receipt(ctx context.Context, post madePost) (pushed int, done bool, err error) {
	var data struct {
		Node struct {
			Delivery *struct {
				Done   bool
				Pushed int
			}
		}
	}
	if _, err := d.client.call(ctx, d.users[post.author].token, receiptQuery, map[string]any{"id": post.id}, &data); err != nil {
		return 0, false, fmt.Errorf("ask for a receipt: %w", err)
	}
	if data.Node.Delivery == nil {
		return 0, false, nil
	}
	return data.Node.Delivery.Pushed, data.Node.Delivery.Done, nil
}

// arrived waits until the last posts are fanned out, and their events are there.
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
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	}
	d.drain(arrival)
	return nil
}

// pushes adds up the receipts of the posts from a number on.
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

// mark has a user say that all is read.
func (d *modeller) mark(ctx context.Context, user int) error {
	var data struct {
		Timeline struct{ Edges []struct{ Cursor string } }
	}
	if _, err := d.client.call(ctx, d.users[user].token, `query { timeline(first: 1) { edges { cursor } } }`, nil, &data); err != nil {
		return err
	}
	if len(data.Timeline.Edges) == 0 {
		return nil
	}
	_, err := d.client.call(ctx, d.users[user].token, `mutation($input: MarkTimelineReadInput!) { markTimelineRead(input: $input) { unreadCount } }`,
		map[string]any{"input": map[string]string{"upTo": data.Timeline.Edges[0].Cursor}}, &struct{}{})
	return err
}

func (d *modeller) page(ctx context.Context, user int, query string) error {
	size, err := d.client.call(ctx, d.users[user].token, query, nil, &struct{}{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pageBytes += size
	return err
}

// lookUpTime is what Redis has taken to look up who is connected where; 0: not known.
func (d *modeller) lookUpTime(ctx context.Context) time.Duration {
	if d.stores == nil {
		return 0
	}
	took, _ := d.stores.CommandTime(ctx, "smismember") // what Redis does not tell is not known
	return took
}

// quiet waits until the server hardly uses its processors, but not for ever: it may have
// other users.
func (d *modeller) quiet(ctx context.Context) error {
	const hardly = 0.02
	for end := time.Now().Add(rest / 2); time.Now().Before(end); {
		before, err := d.read(ctx)
		if err != nil {
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		after, err := d.read(ctx)
		if err != nil || before.Server == nil {
			return err
		}
		if *after.Server-*before.Server < hardly*float64(after.at.Sub(before.at).Microseconds()) {
			return nil
		}
	}
	return nil
}

func (d *modeller) measureIdle(ctx context.Context) error {
	before, err := d.read(ctx)
	if err != nil {
		return err
	}
	after, err := d.rested(ctx)
	if err != nil {
		return err
	}
	d.idle = capacity.Work{}
	total := d.each(before, after, 1)
	seconds := after.at.Sub(before.at).Seconds()
	d.idle = capacity.Each(func(v []float64) float64 { return v[0] / seconds }, total)
	d.c.Idle = d.idle
	if d.idle.Server == nil {
		d.unknown("processor time of the server: its /metrics do not tell")
	}
	if d.idle.Worker == nil {
		d.unknown("processor time of workers apart: --worker-metrics names none, so they are taken to be inside the server, in whose time theirs is")
	}
	if d.idle.SQL == nil {
		d.unknown("processor time of SQL: SQLite is inside the server, in whose time it is; of PostgreSQL it can be read on its own machine alone")
	}
	if d.idle.Redis == nil {
		d.unknown("processor time and memory of Redis: it is inside the server, in whose figures it is")
	}
	return nil
}

// rested reads after a pause.
func (d *modeller) rested(ctx context.Context) (spent, error) {
	if err := pause(ctx, modelIdle); err != nil {
		return spent{}, err
	}
	return d.read(ctx)
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each is what was spent between two moments, less what idleness costs, divided by n.
func (d *modeller) each(before, after spent, n int) capacity.Work {
	seconds := after.at.Sub(before.at).Seconds()
	used := capacity.Each(func(v []float64) float64 { return v[1] - v[0] }, before.Work, after.Work)
	idle := d.idle
	if idle == (capacity.Work{}) {
		idle = capacity.Each(func([]float64) float64 { return 0 }, used)
	}
	return capacity.Each(func(v []float64) float64 { return (v[0] - seconds*v[1]) / float64(n) }, used, idle)
}

// read asks all processes what they have used.
func (d *modeller) read(ctx context.Context) (s spent, err error) {
	metrics, err := url.Parse(d.options.URL)
	if err != nil {
		return s, err
	}
	metrics.Path, metrics.RawQuery = "/metrics", ""
	server, err := d.metrics(ctx, metrics.String())
	if err != nil {
		return s, err
	}
	if seconds, found := server["process_cpu_seconds_total"]; found {
		s.Server = new(seconds * 1e6)
	}
	if resident, found := server["process_resident_memory_bytes"]; found {
		s.resident = new(resident)
	}
	for _, address := range d.options.WorkerMetrics {
		worker, err := d.metrics(ctx, address)
		if err != nil {
			return s, err
		}
		seconds, found := worker["process_cpu_seconds_total"]
		if !found {
			return s, fmt.Errorf("--worker-metrics: %s does not tell its processor time", address)
		}
		if s.Worker == nil {
			s.Worker = new(0.0)
		}
		*s.Worker += seconds * 1e6
	}
	if d.stores != nil {
		used, err := d.stores.Spent(ctx)
		if err != nil {
			return s, err
		}
		micros := func(took *time.Duration) capacity.Figure {
			if took == nil {
				return nil
			}
			return new(float64(took.Microseconds()))
		}
		s.SQL, s.Redis = micros(used.SQL), micros(used.Redis)
	}
	s.at = time.Now()
	return s, nil
}

// metrics reads those without labels.
func (d *modeller) metrics(ctx context.Context, address string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := d.client.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: %s answers %s; --model needs them", address, response.Status)
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil && !strings.ContainsAny(name, "#{") {
			values[name] = v
		}
	}
	return values, nil
}

// measureBytes looks into the stores.
func (d *modeller) measureBytes(ctx context.Context) error {
	if d.stores == nil {
		return nil
	}
	tables, err := d.stores.Tables(ctx)
	if err != nil {
		return err
	}
	var few []string
	for _, t := range tables {
		row := map[string]*capacity.Figure{
			"users": &d.c.UserRow, "sessions": &d.c.SessionRow, "read_markers": &d.c.MarkerRow,
			"follows": &d.c.FollowRow, "posts": &d.c.PostRow, "deliveries": &d.c.ReceiptRow,
		}[t.Name]
		if row == nil || t.Rows == 0 {
			continue
		}
		*row = new(float64(t.Bytes) / float64(t.Rows))
		if t.Rows < fewRows {
			few = append(few, fmt.Sprintf("%s (%d)", t.Name, t.Rows))
		}
	}
	if len(few) > 0 {
		d.unknown("bytes a row where there are few rows; these are too high: %s", strings.Join(few, ", "))
	}
	kinds, err := d.stores.Keys(ctx, modelSample, timeline.KindOf)
	if err != nil {
		return err
	}
	per := func(kind string, entries bool) capacity.Figure {
		k := kinds[kind]
		n := k.Count
		if entries {
			n = k.Entries
		}
		if n == 0 {
			return nil
		}
		return new(float64(k.Bytes) / float64(n))
	}
	d.c.InboxEntry, d.c.InboxRest = per(timeline.KindInbox, true), per(timeline.KindJournal, false)
	d.c.OutboxEntry, d.c.OutboxRest = per(timeline.KindOutbox, true), per(timeline.KindCoverage, false)
	d.c.Fences, d.c.Active, d.c.Latest = per(timeline.KindFences, false), per(timeline.KindActive, true), per(timeline.KindLatest, true)
	if k := kinds[timeline.KindInbox]; k.Count > 0 {
		d.c.InboxEntries = new(math.Round(float64(k.Entries) / float64(k.Count)))
	}
	return nil
}

// sameStores is an error unless the stores have the users of the run: those of another
// server would tell nothing about this one.
func (d *modeller) sameStores(ctx context.Context) error {
	if d.stores == nil {
		return nil
	}
	var n int
	err := d.stores.SQL.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM users WHERE handle = '%s'", d.handle(0))).Scan(&n)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("the stores of the settings are not those of the server at --url")
	}
	return nil
}

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// happening records a fault that was injected.
type happening struct {
	kind, detail string
	from, to     time.Time
	healed       time.Time // zero if not healed before the next fault, or within a minute after the last one
	err          error
}

// diary records the injected faults in the order in which they began.
type diary struct {
	mu   sync.Mutex
	list []*happening
	// losses describes posts that clients still lacked catchingUp after the recovery from a fault.
	losses []string
}

func (d *diary) begin(kind string) *happening {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := &happening{kind: kind, from: time.Now()}
	d.list = append(d.list, h)
	return h
}

// end records the end of a fault.
func (d *diary) end(h *happening, detail string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.detail, h.err, h.to = detail, err, time.Now()
}

func (d *diary) all() []happening {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]happening, len(d.list))
	for i, h := range d.list {
		list[i] = *h
	}
	return list
}

// around names the faults within five seconds of at, with their numbers in the table.
func (d *diary) around(at time.Time) string {
	const near = 5 * time.Second
	var names []string
	for i, h := range d.all() {
		if at.After(h.from.Add(-near)) && (h.to.IsZero() || at.Before(h.to.Add(near))) {
			names = append(names, fmt.Sprintf("#%d %s", i+1, h.kind))
		}
	}
	if names == nil {
		return "no fault"
	}
	return strings.Join(names, " and ")
}

// pace sets the pauses between faults and the lengths of faults.
type pace struct {
	least, most time.Duration // range of the pause after a fault
	short, long time.Duration // approximate length of a normal and of a long fault
}

// suffer injects faults of the given kinds, one after the other, until end. It uses each kind
// once before it repeats one.
func (w *world) suffer(ctx context.Context, kinds []kind, end time.Time, p pace, rng *rand.Rand) {
	next := make(chan struct{}) // closed when the next fault begins
	var measured sync.WaitGroup
	defer func() {
		last := time.AfterFunc(time.Minute, func() { close(next) })
		measured.Wait()
		last.Stop()
	}()
	for n := 0; len(kinds) > 0; n++ {
		if n%len(kinds) == 0 {
			rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		k := kinds[n%len(kinds)]
		// A generator per fault: the random choices do not depend on how earlier faults went.
		of := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		length := between(of, p.short*3/4, p.short*5/4)
		time.Sleep(between(of, p.least, p.most))
		rest := time.Until(end)
		if k.long {
			length = max(length, min(p.long, rest-p.short))
		}
		if rest < length+p.short/2 || ctx.Err() != nil {
			return
		}
		close(next)
		measured.Wait()
		next = make(chan struct{})
		h := w.faults.begin(k.name)
		w.t.Logf("+%3.0fs %s", h.from.Sub(w.began).Seconds(), k.name)
		detail, err := k.happen(w, ctx, of, length)
		w.faults.end(h, detail, err)
		if err != nil {
			w.t.Errorf("%s (%s) could not be done: %v", k.name, detail, err)
		}
		measured.Go(func() { w.measureHealing(ctx, h, next) })
	}
}

// measureHealing records when the system is well again after a fault, and then checks the
// clients. It gives up when the next fault begins.
func (w *world) measureHealing(ctx context.Context, h *happening, next <-chan struct{}) {
	for {
		if w.well(ctx, h.to) == nil {
			w.faults.mu.Lock()
			h.healed = time.Now()
			w.faults.mu.Unlock()
			w.checkClients(ctx, h, next)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// catchingUp is how long a client may take to receive what it missed, once the system is
// well again.
const catchingUp = 10 * time.Second

// checkClients polls, once the system has recovered from a fault, until no steady client silently
// lacks a post: one that it did not receive although nothing told it to read again. It records what
// is still lacking after catchingUp. It gives up when the next fault begins, because a later
// invalidation for another reason would hide the loss.
func (w *world) checkClients(ctx context.Context, h *happening, next <-chan struct{}) {
	var lines []string
	afflicted, deadline := w.afflicted.Load(), time.Now().Add(catchingUp)
	for {
		var err error
		if lines, err = w.lackedPosts(); err != nil || len(lines) == 0 {
			return // an error of the crowd is reported at the end of the test
		}
		if now := w.afflicted.Load(); now != afflicted { // a process fault began or ended: its clients have to catch up, too
			afflicted, deadline = now, time.Now().Add(catchingUp)
		} else if time.Now().After(deadline) && w.well(ctx, h.to) == nil {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
			return
		case <-time.After(time.Second):
		}
	}
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	for _, line := range lines {
		w.faults.losses = append(w.faults.losses, fmt.Sprintf("%s, more than %v after the recovery from %s", line, catchingUp, h.kind))
	}
}

// lackedPosts describes the posts that connected steady clients lack, although the posts were
// accepted more than catchingUp ago and have belonged to the clients' timelines all the time.
func (w *world) lackedPosts() (lines []string, err error) {
	clients, err := w.crowd.Report()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	w.load.mu.Lock()
	posts := slices.Collect(maps.Values(w.load.accepted))
	w.load.mu.Unlock()
	afflicted := w.afflicted.Load()
	for i, c := range clients[:w.steady] {
		if w.servers[c.Server] == afflicted || now.Sub(time.UnixMilli(c.Beat)) > 3*time.Second {
			continue // the server has a fault, or the client knows that it is not connected
		}
		held := map[int64]bool{}
		for _, id := range postIDs(c.Held) {
			held[id] = true
		}
		for _, p := range posts {
			if now.Sub(p.at) > catchingUp && !held[p.id] && w.load.ledger.surelySaw(w.users[i].ID, p.id, p.at.Add(-catchingUp), now) {
				lines = append(lines, fmt.Sprintf("SILENT: the client %s was not told of post %d %s", w.clientName(i), p.id, w.describe(p.id)))
			}
		}
	}
	return lines, nil
}

// well returns nil if the system has recovered: all processes are ready, except the one that
// has a fault now, the last probes of every server began after since and succeeded, and no job is
// older than two seconds. Otherwise it returns the first problem.
func (w *world) well(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	afflicted := w.afflicted.Load()
	for _, m := range w.members() {
		if m != afflicted {
			if err := m.Ready(ctx); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	for i, p := range w.probers {
		if w.servers[i] != afflicted && !p.answersSince(since) {
			return fmt.Errorf("%s has not yet answered new probes", w.servers[i].name)
		}
	}
	waiting, err := w.count(ctx, `SELECT count(*) FROM jobs WHERE NOT dead AND created_at < now() - interval '2 seconds'`)
	if err == nil && waiting > 0 {
		err = fmt.Errorf("%d jobs wait", waiting)
	}
	return err
}

// table describes the faults: how long writes and reads were refused, and how long the system
// took to recover. The columns of refusals contain one duration per server.
func (w *world) table() string {
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "\tfault\tat\tlasted\twrites refused\treads refused\thealed after\twhat")
	for i, h := range w.faults.all() {
		until := h.healed
		healed := "not until the next"
		if until.IsZero() {
			until = h.to
		} else {
			healed = seconds(until.Sub(h.to))
		}
		var writes, reads []string
		for _, p := range w.probers {
			// A probe that began within the fault may fail up to probeTimeout later.
			write, read := p.refusedIn(h.from, until.Add(probeTimeout))
			writes, reads = append(writes, seconds(write)), append(reads, seconds(read))
		}
		fmt.Fprintf(out, "#%d\t%s\t+%.0f s\t%s\t%s\t%s\t%s\t%s\n", i+1, h.kind, h.from.Sub(w.began).Seconds(), seconds(h.to.Sub(h.from)),
			strings.Join(writes, " / "), strings.Join(reads, " / "), healed, h.detail)
	}
	_ = out.Flush()
	for i, p := range w.probers {
		p.mu.Lock()
		fmt.Fprintf(&b, "%s: %d probes wrote, %d read; refusals by reason: %v\n", w.servers[i].name, len(p.writes), len(p.reads), p.refusals)
		p.mu.Unlock()
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

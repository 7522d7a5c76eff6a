package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	tideline "tideline/clients/go"
	"tideline/e2e/worldtest"
)

const (
	// probing is the interval between probes.
	probing = 200 * time.Millisecond
	// probeTimeout is the time after which a probe counts as refused.
	probeTimeout = 3 * time.Second
	// probers is the number of accounts that probe a server in turn. There are enough that
	// no account's posts exceed the size of its outbox.
	probers = 8
)

// prober posts and reads through one server, and records when the server refused.
type prober struct {
	server   *worldtest.Process
	accounts []worldtest.User

	mu       sync.Mutex
	posts    map[int64]probed // accepted posts by id
	newest   probed
	writes   []probe
	reads    []probe
	unread   []string // accepted posts missing from their author's timeline
	refusals map[string]int
}

// probed is an accepted post of a prober.
type probed struct {
	id string
	by worldtest.User
	at time.Time
}

// probe is one attempt to write or read.
type probe struct {
	began, ended time.Time
	err          error
}

// run writes and reads repeatedly until ctx ends.
func (p *prober) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.repeat(ctx, &p.writes, p.write) })
	both.Go(func() { p.repeat(ctx, &p.reads, p.read) })
	both.Wait()
}

func (p *prober) repeat(ctx context.Context, list *[]probe, once func(context.Context, int) error) {
	tick := time.NewTicker(probing)
	defer tick.Stop()
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, probeTimeout)
		done := probe{began: time.Now()}
		done.err = once(attempt, n)
		done.ended = time.Now()
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		*list = append(*list, done)
		if done.err != nil {
			p.refusals[reason(done.err)]++
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reason returns a short text that errors of the same kind share.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	if code := tideline.CodeOf(err); code != "" {
		return code
	}
	text := err.Error()
	return text[max(0, len(text)-40):]
}

func (p *prober) write(ctx context.Context, n int) error {
	by := p.accounts[n%len(p.accounts)]
	var data struct {
		CreatePost struct{ Post struct{ ID string } }
	}
	err := p.server.Call(ctx, by.Token, `mutation($t: String!) { createPost(input: {text: $t, visibility: PUBLIC}) { post { id } } }`,
		map[string]any{"t": fmt.Sprint("probe ", n)}, &data)
	if err != nil {
		return err
	}
	id := data.CreatePost.Post.ID
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = probed{id, by, time.Now()}
	p.posts[worldtest.PostID(id)] = p.newest
	return nil
}

// read reads the timeline of the account that posted last. The timeline must contain that
// post.
func (p *prober) read(ctx context.Context, _ int) error {
	p.mu.Lock()
	want := p.newest
	p.mu.Unlock()
	if want.id == "" {
		return nil
	}
	began := time.Now()
	var data struct{ Timeline worldtest.List }
	if err := p.server.Call(ctx, want.by.Token, `{ timeline(first: 20) { nodes { id } } }`, nil, &data); err != nil {
		return err
	}
	if !slices.ContainsFunc(data.Timeline.Nodes, func(n worldtest.Post) bool { return n.ID == want.id }) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unread = append(p.unread, fmt.Sprintf("post %d of %s, accepted at %s, was not in its author's timeline at %s, read through the same server",
			worldtest.PostID(want.id), want.by.Handle, want.at.Format(clock), began.Format(clock)))
	}
	return nil
}

// refused returns how long probes failed between from and to. A refusal lasts from the start
// of the first failed probe to the start of the next successful one.
func refused(list []probe, from, to time.Time) (total time.Duration) {
	var since time.Time
	end := func(at time.Time) {
		if since.Before(from) {
			since = from
		}
		if at.After(to) {
			at = to
		}
		total += max(0, at.Sub(since))
		since = time.Time{}
	}
	for _, p := range list {
		switch {
		case p.err != nil && since.IsZero():
			since = p.began
		case p.err == nil && !since.IsZero():
			end(p.began)
		}
	}
	if !since.IsZero() {
		end(to)
	}
	return total
}

// refusedIn returns how long writes and reads were refused between from and to.
func (p *prober) refusedIn(from, to time.Time) (writes, reads time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return refused(p.writes, from, to), refused(p.reads, from, to)
}

// answersSince reports whether the last write and the last read began after at and succeeded.
func (p *prober) answersSince(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	good := func(list []probe) bool {
		last := len(list) - 1
		return last >= 0 && list[last].began.After(at) && list[last].err == nil
	}
	return good(p.writes) && good(p.reads)
}

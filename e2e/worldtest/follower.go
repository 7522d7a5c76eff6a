package worldtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tideline "tideline/clients/go"
)

// Clients is implemented by [Crowd] and [Followers].
type Clients interface {
	Calm() error
	Report() ([]Client, error)
}

// Followers is a group of Go clients that follow timelines, like a [Crowd].
type Followers struct {
	ctx  context.Context // the test's context; the clients end with it
	all  []*follower
	calm chan struct{}
}

// NewFollowers starts one Timeline of the Go client for each user and returns when all are
// connected. Each connection goes to a random server. Restless clients at times break their
// connections, read older pages, read again, or stop and restart from their saved state.
func NewFollowers(t *testing.T, users []User, restless bool, servers ...*Process) *Followers {
	t.Helper()
	f := &Followers{ctx: t.Context(), calm: make(chan struct{})}
	var work sync.WaitGroup
	t.Cleanup(work.Wait) // the test's context has already ended
	for _, u := range users {
		c := &follower{ctx: t.Context(), work: &work, user: u, told: map[string]bool{}, lines: map[*line]bool{}}
		for _, p := range servers {
			c.servers = append(c.servers, strings.TrimPrefix(p.URL, "http://"))
		}
		f.all = append(f.all, c)
		c.begin(nil)
		work.Go(c.watch)
	}
	for _, c := range f.all {
		c.awaitLive()
	}
	if restless { // only now: a restless client replaces its timeline
		for _, c := range f.all {
			work.Go(func() { c.fidget(f.calm) })
		}
	}
	return f
}

// Calm makes the clients keep their connections from now on. It must be called at most once.
func (f *Followers) Calm() error {
	close(f.calm)
	return nil
}

// Report makes each client read its timeline to the end. It returns the clients in the order of
// the users.
func (f *Followers) Report() ([]Client, error) {
	var clients []Client
	for _, c := range f.all {
		clients = append(clients, c.report())
	}
	return clients, f.ctx.Err()
}

// follower is one client of Followers.
type follower struct {
	ctx     context.Context
	work    *sync.WaitGroup
	user    User
	servers []string // addresses as host:port

	mu       sync.Mutex
	timeline *tideline.Timeline[Post]
	stop     context.CancelFunc // cancels the timeline's Run
	ended    chan struct{}      // closed when Run has returned
	lines    map[*line]bool
	opened   int // WebSocket connections opened so far
	state    Client
	told     map[string]bool // posts added by events since the last invalidation, and not removed since
}

// begin starts a new timeline, which resumes from saved if it is not nil.
func (c *follower) begin(saved *tideline.Saved[Post]) {
	client := &tideline.Client{
		URL: "http://tideline.test/graphql", Token: tideline.Fixed(c.user.Token),
		HTTP: &http.Client{Timeout: callTimeout, Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}},
	}
	timeline := tideline.NewTimeline(client, tideline.Options[Post]{
		Fields: "id text", PageSize: 50, Most: 5000, Heartbeat: time.Second, Saved: saved, OnEvent: c.hear,
		Backoff: func(int) time.Duration { return 50*time.Millisecond + rand.N(200*time.Millisecond) },
	})
	ctx, stop := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeline, c.stop, c.ended = timeline, stop, ended
	c.work.Go(func() {
		defer close(ended)
		if err := timeline.Run(ctx); !errors.Is(err, context.Canceled) {
			c.fail(err)
		}
	})
}

func (c *follower) fail(what any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Failed = append(c.state.Failed, fmt.Sprint(what))
}

func (c *follower) now() *tideline.Timeline[Post] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeline
}

// line is a connection to one of the servers.
type line struct {
	net.Conn
	of    *follower
	asked bool
}

func (c *follower) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, c.servers[rand.IntN(len(c.servers))])
	if err != nil {
		return nil, err
	}
	l := &line{Conn: conn, of: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[l] = true
	return l, nil
}

// Write counts the WebSocket handshakes: connections whose first request is a GET.
func (l *line) Write(p []byte) (int, error) {
	if !l.asked {
		l.asked = true
		if strings.HasPrefix(string(p), http.MethodGet) {
			l.of.mu.Lock()
			l.of.opened++
			l.of.mu.Unlock()
		}
	}
	return l.Conn.Write(p)
}

// Close forgets the connection.
func (l *line) Close() error {
	l.of.mu.Lock()
	delete(l.of.lines, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

// hear records an event. A post counts as a duplicate if it is added again although it was not
// removed and the timeline was not invalidated in between.
func (c *follower) hear(e tideline.Event[Post]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Beat = time.Now().UnixMilli()
	if strings.HasPrefix(e.Entry.Post.Text, "secret") {
		c.state.Failed = append(c.state.Failed, "was told of "+e.Entry.Post.Text)
	}
	switch e.Kind {
	case tideline.PostAdded:
		if c.told[e.Entry.ID] {
			c.state.Twice = append(c.state.Twice, e.Entry.ID)
		}
		c.told[e.Entry.ID] = true
	case tideline.PostRemoved:
		delete(c.told, e.Entry.ID)
	case tideline.Invalidated:
		c.state.Invalidated++
		clear(c.told)
	}
}

// watch checks every state that the timeline shows.
func (c *follower) watch() {
	for c.ctx.Err() == nil {
		timeline := c.now()
		changed := timeline.Changed()
		seen := map[string]bool{}
		for _, e := range timeline.Snapshot().Entries {
			if seen[e.ID] {
				c.fail(e.ID + " is shown twice")
			}
			if seen[e.ID] = true; strings.HasPrefix(e.Post.Text, "secret") {
				c.fail("was shown " + e.Post.Text)
			}
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // begin may have replaced the timeline
		case <-c.ctx.Done():
		}
	}
}

// awaitLive waits until the first timeline is live, or the test ends.
func (c *follower) awaitLive() {
	for timeline := c.now(); ; {
		changed := timeline.Changed()
		if timeline.Snapshot().Live {
			return
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return
		}
	}
}

// pause waits for d. It returns false if the clients were calmed or the test ended first.
func (c *follower) pause(d time.Duration, calm chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-calm:
	case <-c.ctx.Done():
	}
	return false
}

func (c *follower) fidget(calm chan struct{}) {
	for c.pause(time.Second+rand.N(8*time.Second), calm) {
		switch what := rand.IntN(10); {
		case what < 5:
			c.mu.Lock()
			lines := slices.Collect(maps.Keys(c.lines))
			c.mu.Unlock()
			for _, l := range lines {
				_ = l.Close() // it may be closed already
			}
		case what < 7:
			_ = c.now().ReadOlder(c.ctx) // fails while a server is down
		case what < 8:
			_ = c.now().Read(c.ctx)
		default:
			c.stop()
			<-c.ended
			saved := c.now().Save()
			c.pause(rand.N(2*time.Second), calm)
			c.begin(&saved)
		}
	}
}

// report reads the timeline to its end and returns the client's state. It retries failed pages.
func (c *follower) report() Client {
	timeline := c.now()
	for n := 0; n < 200 && timeline.Snapshot().More; n++ {
		if timeline.ReadOlder(c.ctx) != nil {
			c.pause(20*time.Millisecond, nil)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, state := timeline.Snapshot(), c.state
	state.Resumed, state.Behind = max(0, c.opened-1), s.More || !s.Live
	for _, e := range s.Entries {
		state.Held, state.Texts = append(state.Held, e.ID), append(state.Texts, e.Post.Text)
	}
	return state
}

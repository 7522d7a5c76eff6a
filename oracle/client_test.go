package oracle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/paging"
	"tideline/feed/stream"
	"tideline/live"
	"tideline/storage/storagetest"
)

// entrance accepts the clients of a process. Its hub reaches Redis through a network that can fail.
type entrance struct {
	net     *storagetest.Network
	hub     *live.Hub
	streams *stream.Streams
	away    bool
}

// enter opens the entrance of a process. Its timeouts are tenths of a second instead of seconds,
// and a subscription that nobody reads lags after a few events.
func (e *engine) enter(w *feedtest.World) {
	rdb, net := storagetest.Through(e.t, e.s.Redis)
	hub := live.NewHub(rdb, live.HubConfig{
		Sharded: e.s.Sharded, Buffer: 8, Heartbeat: 100 * time.Millisecond, Silence: 1500 * time.Millisecond, Mark: w.Home.Arrivals.ArrivedID,
	})
	streams, err := w.StreamsFrom(hub)
	e.must(err)
	w.Run(hub.Run)
	e.entrances[w] = &entrance{net: net, hub: hub, streams: streams}
}

// client follows a viewer's timeline as a correct program does: it reads all pages, takes events,
// and reads again when it is told to.
type client struct {
	viewer int
	held   map[int]bool   // posts that the client has
	said   map[int]string // the text of each post that the client has
	maybe  map[int]bool   // posts from pages; an event in flight may repeat them
	after  *string        // where the client resumes
	at     *entrance      // nil: the client is not connected
	stream *stream.Stream
	stop   context.CancelFunc
	deaf   bool // Redis has lost the activity of the viewer; the stream notices within minutes
}

// verdictLasts is how long an event may ignore a change in another process.
const verdictLasts = 100 * time.Millisecond

// subscribe connects the viewer's client if it is not connected.
func (r *run) subscribe(v int) error {
	c, at := r.clients[v], r.entrances[r.front()]
	switch {
	case c != nil && c.at != nil || at.away:
		return nil
	case c == nil:
		r.say("%s reads the timeline and subscribes", r.name(v))
		c = &client{viewer: v}
		r.clients[v] = c
		if r.turn%4 == 3 { // the client reads when it is connected
			break
		}
		if err := r.readAll(c); err != nil {
			return err
		}
	default:
		r.say("%s subscribes again", r.name(v))
		r.seen.resumed++
	}
	return r.connect(c, at)
}

func (r *run) connect(c *client, at *entrance) error {
	ctx, stop := context.WithCancel(r.ctx)
	s, err := at.streams.Listen(ctx, r.viewer(c.viewer), stream.Options{After: c.after, Heartbeat: time.Second, Updates: true}, func() {})
	if err != nil {
		stop()
		return fmt.Errorf("%s subscribes: %w", r.name(c.viewer), err)
	}
	c.at, c.stream, c.stop, c.deaf = at, s, stop, false
	if c.after == nil { // there is no position to resume from, so the client reads after it has connected
		return r.readAll(c)
	}
	return nil
}

// cut breaks the client's connection.
func (c *client) cut() {
	if c.at != nil {
		c.stop()
		c.at, c.stream = nil, nil
	}
}

// readAll reads the timeline from its first page on. The client resumes after that page, or after
// the last event if it is connected. An event may repeat a post from a later page, or from a page
// that was read while connected.
func (r *run) readAll(c *client) error {
	size := 20
	c.held, c.maybe, c.said = map[int]bool{}, map[int]bool{}, map[int]string{}
	for p, first := (paging.Page{First: &size}), true; ; first = false {
		page, err := r.front().Home.Timeline(r.ctx, r.viewer(c.viewer), p, home.Latest)
		if err != nil {
			return err
		}
		for _, e := range page.Edges {
			n := r.numbers[e.Node.ID]
			c.held[n], c.said[n] = true, e.Node.Text
			if !first || c.at != nil {
				c.maybe[n] = true
			}
		}
		if first && (c.at == nil || r.turn%2 == 0) {
			c.after = &page.Position
		}
		if !page.HasNextPage {
			return nil
		}
		p.After = &page.Edges[len(page.Edges)-1].Cursor
	}
}

// take takes up to the given number of events.
func (r *run) take(c *client, most int) error {
	for range most {
		if c.at == nil {
			return nil
		}
		begun := time.Now()
		ev, ok := c.stream.Next(r.ctx)
		if !ok {
			if c.stream.Ended() { // the stream could not continue: the client connects again
				c.cut()
			}
			return nil
		}
		added, _ := ev.(*stream.PostAdded)
		alone := added == nil || r.turn%2 == 0 || added.Once(c, func() any { return c }) == nil
		if !c.stream.Confirm(r.ctx, ev, alone) {
			continue
		}
		r.seen.events++
		switch ev := ev.(type) {
		case *stream.PostAdded:
			p, known := r.numbers[ev.Edge.Node.ID]
			if !known {
				return fmt.Errorf("%s is told of post %d, which is none of this run", r.name(c.viewer), ev.Edge.Node.ID)
			}
			if !r.gets(c.viewer, p) && (alone || begun.Sub(r.acted) > verdictLasts) {
				return fmt.Errorf("%s is told that #%d is there, which is hidden", r.name(c.viewer), p)
			}
			if c.held[p] && !c.maybe[p] {
				return fmt.Errorf("%s is told twice of #%d", r.name(c.viewer), p)
			}
			delete(c.maybe, p)
			c.held[p], c.said[p] = true, ev.Edge.Node.Text
			at := ev.Position()
			c.after = &at
		case *stream.PostUpdated:
			p, known := r.numbers[ev.Edge.Node.ID]
			if !known || !r.gets(c.viewer, p) && (alone || begun.Sub(r.acted) > verdictLasts) {
				return fmt.Errorf("%s is told what #%d says, which is hidden", r.name(c.viewer), p)
			}
			c.held[p], c.said[p] = true, ev.Edge.Node.Text
			at := ev.Position()
			c.after = &at
		case *stream.PostRemoved:
			if p, known := r.numbers[ev.PostID]; known {
				delete(c.held, p)
			}
			c.after = &ev.Position
		case *stream.Heartbeat:
			c.after = &ev.Position
		case *stream.Invalidated:
			r.seen.invalidated++
			c.after = &ev.Position
			if err := r.readAll(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen lets the clients take events, except the clients of shy users, which take theirs in their
// own steps.
func (r *run) listen() error {
	for i, v := range r.readers {
		if c := r.clients[v]; c != nil && r.shy>>i&1 == 0 {
			if err := r.take(c, 100); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave cuts the current serving process off from the events of Redis, if no other process is.
func (r *run) leave() {
	for _, at := range r.entrances {
		if at.away {
			return
		}
	}
	at := r.entrances[r.front()]
	r.say("process %d hears nothing from Redis", r.turn%len(r.fronts))
	at.away = true
	at.net.Leave()
	for begun := time.Now(); at.hub.Ready(r.ctx) == nil && time.Since(begun) < patience; {
		time.Sleep(time.Millisecond)
	}
}

// comeBack ends leave.
func (e *engine) comeBack() (any bool) {
	for _, at := range e.entrances {
		if at.away {
			at.away, any = false, true
			at.net.Return()
		}
	}
	return any
}

// soon bounds how long clients may take to get an event.
const soon = 15 * time.Second

// caughtUp waits until each client has exactly what its viewer may see, also a client that was
// disconnected.
func (r *run) caughtUp() error {
	if r.comeBack() {
		r.say("all processes hear from Redis")
	}
	for _, v := range slices.Sorted(maps.Keys(r.clients)) {
		c := r.clients[v]
		if c.deaf {
			r.seen.resumed++
			c.cut()
		}
		want := r.timeline(v)
		for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
			if c.at == nil {
				if err := r.connect(c, r.entrances[r.front()]); err != nil {
					return err
				}
			}
			if err := r.take(c, 1000); err != nil {
				return err
			}
			if len(c.held) == len(want) && !slices.ContainsFunc(want, func(p int) bool { return !c.held[p] || c.said[p] != r.posts[p].text() }) {
				break
			}
			if time.Since(begun) > soon {
				return fmt.Errorf("%s's client holds %v, which say %v, not %v", r.name(v), slices.Sorted(maps.Keys(c.held)), c.said, slices.Sorted(slices.Values(want)))
			}
		}
	}
	return nil
}

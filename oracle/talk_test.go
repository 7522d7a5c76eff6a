package oracle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tideline/ent"
	"tideline/feed/paging"
	"tideline/feed/refusal"
	"tideline/feed/stream"
)

// talk is a client that shows a conversation, as a correct program does: it reads all replies, takes
// events, and reads again when it is told to.
type talk struct {
	viewer, root int
	held         map[int]string // the texts of the replies; nil if the viewer did not see the root
	after        *string        // where the client resumes
	at           *entrance      // nil: the client is not connected
	stream       *stream.Conversation
	stop         context.CancelFunc
	deaf         bool // Redis has lost the record of the conversation; the stream notices within minutes
}

// openTalk makes the viewer's client show the conversation of a post, or connects it again.
func (r *run) openTalk(v, p int) error {
	if r.users[v].hidden {
		return nil
	}
	c := r.talks[v]
	if c == nil || r.turn%3 == 0 {
		root := r.rootOf(p)
		if !r.sees(v, root) || r.posts[root].repostOf != none {
			return nil
		}
		if c != nil {
			c.cut()
		}
		r.say("%s opens the conversation of #%d", r.name(v), root)
		c = &talk{viewer: v, root: root}
		r.talks[v] = c
		if err := r.readTalk(c); err != nil {
			return err
		}
	}
	return r.connectTalk(c)
}

// connectTalk connects the client if it is not connected and the viewer sees the root.
func (r *run) connectTalk(c *talk) error {
	at := r.entrances[r.front()]
	if c.at != nil || at.away || !r.sees(c.viewer, c.root) {
		return nil
	}
	ctx, stop := context.WithCancel(r.ctx)
	s, err := at.streams.ListenConversation(ctx, r.viewer(c.viewer), r.posts[c.root].id, c.after, func() {})
	if err != nil {
		stop()
		return fmt.Errorf("%s subscribes to the conversation of #%d: %w", r.name(c.viewer), c.root, err)
	}
	c.at, c.stream, c.stop, c.deaf = at, s, stop, false
	return nil
}

func (c *talk) cut() {
	if c.at != nil {
		c.stop()
		c.at, c.stream = nil, nil
	}
}

// readTalk reads all replies. The client resumes after their first page.
func (r *run) readTalk(c *talk) error {
	f, v, root := r.front(), r.viewer(c.viewer), &ent.Post{ID: r.posts[c.root].id}
	after := r.entrances[f].streams.ConversationPosition(r.ctx, v, root)
	c.after, c.held = &after, nil
	if _, err := f.Feed.Post(r.ctx, v, root.ID); refusal.CodeOf(err) == refusal.NotFound && !r.sees(c.viewer, c.root) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s asks for #%d: %w", r.name(c.viewer), c.root, err)
	}
	size := 100
	c.held = map[int]string{}
	for p := (paging.Page{First: &size}); ; {
		page, err := f.Conversations.All(r.ctx, v, root, p)
		if err != nil {
			return err
		}
		for _, e := range page.Edges {
			c.held[r.numbers[e.Node.ID]] = e.Node.Text
		}
		if !page.HasNextPage {
			return nil
		}
		p.After = &page.Edges[len(page.Edges)-1].Cursor
	}
}

// takeTalk takes up to the given number of events.
func (r *run) takeTalk(c *talk, most int) error {
	for range most {
		if c.at == nil {
			return nil
		}
		begun := time.Now()
		ev, ok := c.stream.Next(r.ctx)
		if !ok {
			if c.stream.Ended() {
				c.cut()
			}
			return nil
		}
		if !c.stream.Confirm(r.ctx, ev, false) {
			continue
		}
		r.seen.events++
		shown := func(p *ent.Post, position string) error {
			n, known := r.numbers[p.ID]
			if !known || r.rootOf(n) != c.root {
				return fmt.Errorf("%s is told of post %d, which is not in the conversation of #%d", r.name(c.viewer), p.ID, c.root)
			}
			if !r.sees(c.viewer, n) && begun.Sub(r.acted) > verdictLasts {
				return fmt.Errorf("%s is told in the conversation of #%d of #%d, which is hidden", r.name(c.viewer), c.root, n)
			}
			if c.after = &position; n != c.root && c.held != nil {
				c.held[n] = p.Text
			}
			return nil
		}
		var err error
		switch ev := ev.(type) {
		case *stream.ConversationPostAdded:
			err = shown(ev.Post, ev.Position)
		case *stream.ConversationPostUpdated:
			err = shown(ev.Post, ev.Position)
		case *stream.ConversationPostRemoved:
			if n, known := r.numbers[ev.PostID]; known {
				delete(c.held, n)
			}
			c.after = &ev.Position
		case *stream.ConversationInvalidated:
			r.seen.invalidated++
			err = r.readTalk(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listenTalks lets the clients of conversations take events. The clients of shy users take theirs in
// their own steps. In a plan that begins with connected clients, each reader soon opens a conversation.
func (r *run) listenTalks() error {
	if v := r.readers[r.turn%len(r.readers)]; r.online && r.talks[v] == nil && len(r.posts) > 0 {
		if err := r.openTalk(v, len(r.posts)-1); err != nil {
			return err
		}
	}
	for i, v := range r.readers {
		if c := r.talks[v]; c != nil && r.shy>>i&1 == 0 && !r.users[v].hidden {
			if err := r.takeTalk(c, 100); err != nil {
				return err
			}
		}
	}
	return nil
}

// talksCaughtUp waits until each client shows exactly the replies that its viewer may see, also a
// client that was disconnected.
func (r *run) talksCaughtUp() error {
	for _, v := range slices.Sorted(maps.Keys(r.talks)) {
		c := r.talks[v]
		if r.users[v].hidden || !r.sees(v, c.root) {
			continue
		}
		if c.deaf {
			c.cut()
		}
		want := map[int]string{}
		for _, p := range r.conversation(v, c.root) {
			want[p] = r.posts[p].text()
		}
		for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
			if c.at == nil {
				r.seen.resumed++
			}
			if err := r.connectTalk(c); err != nil {
				return err
			}
			if err := r.takeTalk(c, 1000); err != nil {
				return err
			}
			if c.held != nil && maps.Equal(c.held, want) {
				break
			}
			if time.Since(begun) > soon {
				return fmt.Errorf("%s's client shows in the conversation of #%d %v, not %v", r.name(v), c.root, c.held, want)
			}
		}
	}
	return nil
}

package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"tideline/e2e/worldtest"
)

// client follows a timeline as a program in Go does: it subscribes, and resumes at any
// server after the last position that it was told.
type client struct {
	user    worldtest.User
	servers []*worldtest.Process

	mu    sync.Mutex
	state worldtest.Client
	held  map[string]bool
	// read are the posts that a page brought, which may be told once more.
	read     map[string]bool
	position *string
}

// follow connects the client until ctx ends.
func follow(ctx context.Context, wg *sync.WaitGroup, user worldtest.User, servers []*worldtest.Process) *client {
	c := &client{user: user, servers: servers, held: map[string]bool{}, read: map[string]bool{}}
	wg.Go(func() {
		for n := rand.IntN(len(servers)); ctx.Err() == nil; n++ {
			if err := c.listen(ctx, servers[n%len(servers)]); errors.Is(err, errEnded) {
				c.mu.Lock()
				c.state.Failed = append(c.state.Failed, err.Error())
				c.mu.Unlock()
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50*time.Millisecond + rand.N(200*time.Millisecond)):
			}
		}
	})
	return c
}

// errEnded says that a server refused the subscription, or completed it.
var errEnded = errors.New("the subscription ended")

type event struct {
	Kind     string `json:"__typename"`
	Position *string
	PostID   string `json:"postId"`
	Edge     struct{ Node struct{ ID string } }
}

// listen subscribes at a server, and returns why that ended.
func (c *client) listen(ctx context.Context, p *worldtest.Process) error {
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: 10 * time.Second}
	conn, response, err := dialer.DialContext(ctx, strings.Replace(p.URL, "http", "ws", 1)+"/graphql", http.Header{})
	if response != nil {
		_ = response.Body.Close()
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	c.mu.Lock()
	after := c.position
	c.mu.Unlock()
	if err := conn.WriteJSON(map[string]any{"type": "connection_init", "payload": map[string]any{"Authorization": "Bearer " + c.user.Token}}); err != nil {
		return err
	}
	for {
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := conn.ReadJSON(&m); err != nil {
			return err
		}
		switch m.Type {
		case "connection_ack":
			err = conn.WriteJSON(map[string]any{"id": "1", "type": "subscribe", "payload": map[string]any{"variables": map[string]any{"after": after}, "query": `
				subscription($after: Cursor) { timelineEvents(after: $after, heartbeat: 1) { __typename
					... on TimelinePostAdded { position edge { node { id } } } ... on TimelinePostRemoved { position postId }
					... on TimelineInvalidated { position } ... on TimelineHeartbeat { position } } }`}})
			if after != nil {
				c.mu.Lock()
				c.state.Resumed++
				c.mu.Unlock()
			}
		case "ping":
			err = conn.WriteJSON(map[string]any{"type": "pong"})
		case "next":
			var data struct {
				Data   struct{ TimelineEvents event }
				Errors []json.RawMessage
			}
			if err = json.Unmarshal(m.Payload, &data); err == nil && len(data.Errors) > 0 {
				err = fmt.Errorf("%w: %s", errEnded, m.Payload)
			}
			if err == nil {
				err = c.told(ctx, data.Data.TimelineEvents)
			}
		case "error", "complete":
			err = fmt.Errorf("%w: %s %s", errEnded, m.Type, m.Payload)
		}
		if err != nil {
			return err
		}
	}
}

func (c *client) told(ctx context.Context, e event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case "TimelinePostAdded":
		id := e.Edge.Node.ID
		if c.held[id] && !c.read[id] {
			c.state.Twice = append(c.state.Twice, id)
		}
		c.held[id] = true
		delete(c.read, id)
	case "TimelinePostRemoved":
		delete(c.held, e.PostID)
	case "TimelineInvalidated":
		c.state.Invalidated++
		ids, err := c.timeline(ctx)
		if err != nil {
			return err // it comes back with the position of before, and is told again
		}
		clear(c.held)
		for _, id := range ids {
			c.held[id], c.read[id] = true, true
		}
	}
	c.position = e.Position
	return nil
}

// timeline reads all of it at the first server that answers.
func (c *client) timeline(ctx context.Context) (ids []string, err error) {
	for _, p := range c.servers {
		if ids, err = c.user.Timeline(ctx, p); err == nil {
			return ids, nil
		}
	}
	return nil, err
}

func (c *client) report() worldtest.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.state
	for id := range c.held {
		state.Held = append(state.Held, id)
	}
	return state
}

// ready reports whether the client was told something.
func (c *client) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position != nil
}

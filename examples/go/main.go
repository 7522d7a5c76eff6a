// Command go follows a timeline: it prints its newest page, then what happens
// to it, for as long as it runs. It needs a WebSocket library and nothing else.
//
//	TIDELINE_URL=http://127.0.0.1:8080 TIDELINE_TOKEN=… go run ./examples/go
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

const timeline = `{
	timeline(first: 20) { position edges { node { text author { handle } } } }
}`

const timelineEvents = `subscription ($after: Cursor) {
	timelineEvents(after: $after, heartbeat: 20) {
		__typename
		... on TimelinePostAdded { position edge { node { text author { handle } } } }
		... on TimelinePostRemoved { position postId }
		... on TimelineInvalidated { position reason }
		... on TimelineHeartbeat { position }
	}
}`

// silence is how long a healthy stream never is: two heartbeats.
const silence = 40 * time.Second

type edge struct {
	Node struct {
		Text   string
		Author struct{ Handle string }
	}
}

type event struct {
	Typename string `json:"__typename"`
	Position string
	Edge     edge
	PostID   string
	Reason   string
}

// client knows where the subscription takes up: after the page read, or
// the last event dealt with.
type client struct {
	url, token string
	position   *string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := client{url: strings.TrimSuffix(os.Getenv("TIDELINE_URL"), "/") + "/graphql", token: os.Getenv("TIDELINE_TOKEN")}
	if err := c.read(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for ctx.Err() == nil {
		// A connection may be lost at any time; what came meanwhile comes first on the next one.
		err := c.listen(ctx)
		if websocket.IsCloseError(err, 4403) {
			fmt.Fprintln(os.Stderr, "the session has ended")
			os.Exit(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			fmt.Println("connecting again:", err)
		}
	}
}

// read prints the newest page of the timeline.
func (c *client) read(ctx context.Context) error {
	body, err := json.Marshal(map[string]string{"query": timeline})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+c.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Data struct {
			Timeline struct {
				Position string
				Edges    []edge
			}
		}
		Errors []struct{ Message string }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read timeline: %w", err)
	}
	if len(answer.Errors) > 0 {
		return errors.New(answer.Errors[0].Message)
	}
	for _, e := range answer.Data.Timeline.Edges {
		fmt.Printf("@%s: %s\n", e.Node.Author.Handle, e.Node.Text)
	}
	c.position = &answer.Data.Timeline.Position
	return nil
}

// listen prints events until the connection is lost.
func (c *client) listen(ctx context.Context) error {
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: 10 * time.Second}
	conn, _, err := dialer.DialContext(ctx, strings.Replace(c.url, "http", "ws", 1), nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = conn.WriteJSON(map[string]any{
		"type": "connection_init", "payload": map[string]string{"Authorization": "Bearer " + c.token},
	})
	if err != nil {
		return err
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		var message struct {
			Type    string
			Payload json.RawMessage
		}
		if err := conn.ReadJSON(&message); err != nil {
			return err
		}
		switch message.Type {
		case "connection_ack":
			err = conn.WriteJSON(map[string]any{"id": "1", "type": "subscribe", "payload": map[string]any{
				"query": timelineEvents, "variables": map[string]any{"after": c.position},
			}})
			fmt.Println("listening")
		case "ping":
			err = conn.WriteJSON(map[string]string{"type": "pong"})
		case "next":
			err = c.handle(ctx, message.Payload)
		case "error", "complete":
			err = fmt.Errorf("the subscription ended: %s", message.Payload)
		}
		if err != nil {
			return err
		}
	}
}

func (c *client) handle(ctx context.Context, payload json.RawMessage) error {
	var answer struct {
		Data struct{ TimelineEvents event }
	}
	if err := json.Unmarshal(payload, &answer); err != nil {
		return fmt.Errorf("read event: %w", err)
	}
	e := answer.Data.TimelineEvents
	switch e.Typename {
	case "TimelinePostAdded":
		fmt.Printf("new from @%s: %s\n", e.Edge.Node.Author.Handle, e.Edge.Node.Text)
	case "TimelinePostRemoved":
		fmt.Println("gone:", e.PostID)
	case "TimelineInvalidated":
		fmt.Println("read again:", e.Reason)
		if err := c.read(ctx); err != nil {
			return err
		}
	}
	c.position = &e.Position
	return nil
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	tideline "tideline/clients/go"
)

// told is a timeline event: a new post, a removal, an invalidation or a heartbeat.
type told struct {
	Typename string `json:"__typename"`
	Position string
	PostID   string
	Reason   string
	Edge     struct{ Node struct{ ID, Text string } }
}

// timelineEvents subscribes to the user's timeline. The variables are after and heartbeat.
func (u user) timelineEvents(ctx context.Context, p *process, variables map[string]any) (*tideline.Subscription, error) {
	client := tideline.Client{URL: p.url + "/graphql", Token: tideline.Fixed(u.token)}
	return client.Subscribe(ctx, `subscription ($after: Cursor, $heartbeat: Int) { timelineEvents(after: $after, heartbeat: $heartbeat) {
		__typename
		... on TimelinePostAdded { position unreadCount edge { node { id text } } }
		... on TimelinePostRemoved { position postId }
		... on TimelineInvalidated { position reason }
		... on TimelineHeartbeat { position }
	} }`, variables)
}

// next returns the next event of a subscription. An event with errors fails the test.
func next(ctx context.Context, t *testing.T, s *tideline.Subscription) (told, error) {
	result, err := s.Next(ctx)
	if err != nil {
		return told{}, err
	}
	var message struct {
		Data   struct{ TimelineEvents told }
		Errors json.RawMessage
	}
	if err := json.Unmarshal(result, &message); err != nil || message.Errors != nil {
		t.Errorf("the server sent %s", result)
	}
	return message.Data.TimelineEvents, nil
}

// subscriber follows a user's timeline, and resumes after a connection has ended.
type subscriber struct {
	t *testing.T

	mu     sync.Mutex
	events []told
	ends   []error // why connections have ended
}

// subscribe starts a subscriber, which ends with the test.
func (u user) subscribe(t *testing.T, p *process) *subscriber {
	t.Helper()
	s := &subscriber{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		after := map[string]any{}
		for ctx.Err() == nil {
			if subscription, err := u.timelineEvents(ctx, p, after); err == nil {
				s.follow(ctx, subscription, after)
			}
			time.Sleep(poll)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// follow keeps the events, and the position after them, until the connection ends.
func (s *subscriber) follow(ctx context.Context, subscription *tideline.Subscription, after map[string]any) {
	defer subscription.Close()
	for {
		event, err := next(ctx, s.t, subscription)
		s.mu.Lock()
		if err != nil {
			s.ends = append(s.ends, err)
			s.mu.Unlock()
			return
		}
		s.events, after["after"] = append(s.events, event), event.Position
		s.mu.Unlock()
	}
}

// posts returns the texts of the posts received so far, in order of arrival.
func (s *subscriber) posts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := []string{}
	for _, e := range s.events {
		if e.Typename == "TimelinePostAdded" {
			texts = append(texts, e.Edge.Node.Text)
		}
	}
	return texts
}

// received waits until the subscriber has received exactly these posts since its start, each once.
// Any order is fine, because fan-outs can overtake each other.
func (s *subscriber) received(texts ...string) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Subset(c, s.posts(), texts)
	}, patience, poll)
	require.ElementsMatch(s.t, texts, s.posts())
}

// closed waits until a connection has been closed and returns the first close code.
func (s *subscriber) closed() int {
	s.t.Helper()
	var end *tideline.CloseError
	require.Eventually(s.t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.ends, func(err error) bool { return errors.As(err, &end) })
	}, patience, poll, "waiting for the connection to be closed")
	return end.Code
}

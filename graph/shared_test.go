package graph_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/graph"
	"tideline/live"
)

// shared appends the next response as a broadcast does. If it must wait, it tries
// again when the response is made.
func (s subscriber) shared() (text string, ok bool) {
	ctx := graph.WithViewer(s.c.ctx, s.viewer)
	for {
		b, ok, wait := s.AppendShared(ctx, nil)
		if wait == nil {
			return string(b), ok
		}
		<-wait
	}
}

// The appended response of a broadcast equals the response of Next. A selection that depends on
// the viewer is left to Next.
func TestSharedResponse(t *testing.T) {
	each(t, func(c *client) {
		author, first, second := c.User("author"), c.User("first"), c.User("second")
		ids := []int64{first.ID, second.ID}
		for _, id := range ids {
			require.NoError(t, c.s.DB.Follow.Create().SetFollowerID(id).SetFolloweeID(author.ID).Exec(c.ctx))
		}
		c.AwaitInbox(first)
		c.AwaitInbox(second)
		for fields, plain := range map[string]bool{
			`__typename edge { score node { id text createdAt author { handle } } }`: true,
			`edge { node { id viewerHasLiked } }`:                                    false,
			`edge { node { id viewerHasMutedConversation } }`:                        false,
			`unreadCount`: false,
			`edge { node { author { relationship { following } } } }`: false,
		} {
			c.t.Run(fields, func(t *testing.T) {
				query := fmt.Sprintf("subscription { e: timelineEvents { ... on TimelinePostAdded { %s } } }", fields)
				a, b := c.subscribe(first, query, nil), c.subscribe(second, query, nil)
				told := make(chan struct{}, 1)
				a.SetTell(func() <-chan struct{} {
					select {
					case told <- struct{}{}:
					default: // of a subscription that is no longer read
					}
					return nil
				})
				for deadline := time.Now().Add(30 * time.Second); ; { // a verdict may have been too old
					require.True(t, time.Now().Before(deadline))
					_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: c.History(author, 1)[0]}, ids)
					require.NoError(t, err)
					<-told
					text, ok := a.shared()
					if !ok {
						require.Empty(t, text)
						require.Equal(t, a.next(), b.next())
						if plain {
							continue
						}
						return
					}
					require.True(t, plain)
					for { // until b's event has arrived
						response, ok := b.Next(graph.WithViewer(c.ctx, second))
						if !ok {
							<-b.news
							continue
						}
						want, err := response.AppendJSON(nil)
						require.NoError(t, err)
						require.Equal(t, string(want), text)
						return
					}
				}
			})
		}
	})
}

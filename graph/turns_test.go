package graph_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"tideline/ent"
	"tideline/feed"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/live"
	"tideline/storage/storagetest"
)

// Each read of a field with a price takes one turn, wherever it is selected, and a nested field does not wait
// for the field around it.
func TestFieldsWithAPriceTakeTurns(t *testing.T) {
	each(t, func(c *client) {
		t := c.t
		_, ann := c.signUp("ann")
		c.User("bob")
		root, err := c.Feed.CreatePost(c.ctx, ann, feed.Draft{Text: "root #tide"})
		require.NoError(t, err)
		reply, err := c.Feed.CreatePost(c.ctx, ann, feed.Draft{Text: "reply", ReplyTo: root.ID})
		require.NoError(t, err)
		post := fmt.Sprintf("post(id: %q)", ent.NodeID("Post", root.ID))
		var turns atomic.Int64
		line := semaphore.NewWeighted(1)
		count := func(query string) int64 {
			t.Helper()
			ctx := graph.WithViewer(c.ctx, c.viewer)
			op, errs := c.engine.Prepare(ctx, exec.Request{Query: query})
			require.Empty(t, errs, query)
			turns.Store(0)
			op.TakeTurns(func(ctx context.Context, _ int, read func()) bool {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if line.Acquire(ctx, 1) != nil {
					return false
				}
				defer line.Release(1)
				turns.Add(1)
				read()
				return true
			})
			response := c.engine.Execute(ctx, op)
			require.Empty(t, response.Errors, query)
			return turns.Load()
		}
		for field, turns := range map[string]int64{
			"timeline(first: 1) { unreadCount nodes { id author { id } } }": 1, "timeline(first: 1, order: RANKED) { nodes { id } }": 1,
			`users(query: "ann", first: 1) { nodes { id } }`: 1, "suggestedUsers(first: 1) { id }": 1,
			`taggedPosts(tag: "tide", first: 1) { nodes { id } }`: 1, "publicPosts(first: 1) { nodes { id } }": 1,
			"viewer { likedPosts(first: 1) { nodes { id } } }": 2, "viewer { mutedConversations(first: 1) { nodes { id } } }": 2,
			`user(handle: "ann") { posts(first: 1) { nodes { id } } }`: 2,
			post + " { replies(first: 1) { nodes { id } } }":           2, post + " { conversation(first: 1) { nodes { id } } }": 2,
			post + " { reposts(first: 1) { nodes { id } } }": 2, post + " { quotes(first: 1) { nodes { id } } }": 2,
			fmt.Sprintf("post(id: %q) { ancestors { id } }", ent.NodeID("Post", reply.ID)): 2,
			"users(first: 2) { nodes { id followers(first: 1) { nodes { id } } } }":        3,
		} {
			require.Equal(t, turns, count("{ "+field+" }"), field)
			require.Equal(t, 3*turns, count("{ a: "+field+" b: "+field+" c: "+field+" }"), field)
		}
		require.EqualValues(t, 3, count("{ "+post+" { replies(first: 1) { nodes { id replies(first: 1) { nodes { id } } } } } }"))
	})
}

// An event with a field that has a price is executed for each subscriber alone, in the turn of its client.
func TestFieldsWithAPriceOfAnEventTakeTurns(t *testing.T) {
	c := newClient(t, storagetest.Embedded(t))
	author := c.User("author")
	var turns atomic.Int64
	var subscribers []subscriber
	var ids []int64
	for _, handle := range []string{"first", "second"} {
		v := c.User(handle)
		require.NoError(t, c.s.DB.Follow.Create().SetFollowerID(v.ID).SetFolloweeID(author.ID).Exec(c.ctx))
		c.AwaitInbox(v)
		subscribers, ids = append(subscribers, c.subscribe(v, "subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { replies(first: 1) { nodes { id } } } } } } }", nil, func(op *exec.Operation) {
			op.TakeTurns(func(_ context.Context, _ int, read func()) bool {
				turns.Add(1)
				read()
				return true
			})
		})), append(ids, v.ID)
	}
	post := c.History(author, 1)[0]
	_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: post, Author: author.ID}, ids)
	require.NoError(t, err)
	for _, s := range subscribers {
		require.NotNil(t, s.next()["edge"])
	}
	require.EqualValues(t, 2, turns.Load(), "each subscriber reads the replies")
}

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

// Each read of a heavy field takes one turn, wherever it is selected, and a nested heavy field does not wait
// for the field around it. Other fields take no turn.
func TestHeavyFieldsTakeTurns(t *testing.T) {
	each(t, func(c *client) {
		t := c.t
		_, ann := c.signUp("ann")
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
			op.TakeTurns(func(ctx context.Context, read func()) bool {
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
		for _, field := range []string{
			"timeline(first: 1, order: RANKED) { nodes { id } }", `users(query: "ann", first: 1) { nodes { id } }`, "suggestedUsers(first: 1) { id }",
			`taggedPosts(tag: "tide", first: 1) { nodes { id } }`, "publicPosts(first: 1) { nodes { id } }",
			"viewer { likedPosts(first: 1) { nodes { id } } }", "viewer { mutedConversations(first: 1) { nodes { id } } }",
			post + " { replies(first: 1) { nodes { id } } }", post + " { conversation(first: 1) { nodes { id } } }",
			post + " { reposts(first: 1) { nodes { id } } }", post + " { quotes(first: 1) { nodes { id } } }",
		} {
			require.EqualValues(t, 1, count("{ "+field+" }"), field)
			require.EqualValues(t, 3, count("{ a: "+field+" b: "+field+" c: "+field+" }"), field)
		}
		require.EqualValues(t, 2, count("{ "+post+" { replies(first: 1) { nodes { id replies(first: 1) { nodes { id } } } } } }"))
		for _, query := range []string{
			"{ timeline(first: 1) { unreadCount nodes { id author { id } } } }", "{ users(first: 1) { nodes { id followers(first: 1) { nodes { id } } } } }",
			fmt.Sprintf(`{ user(handle: "ann") { posts(first: 1) { nodes { id } } } post(id: %q) { ancestors { id } } }`, ent.NodeID("Post", reply.ID)),
		} {
			require.Zero(t, count(query), query)
		}
	})
}

// An event with a heavy field is executed for each subscriber alone, in the turn of its client.
func TestHeavyFieldsOfAnEventTakeTurns(t *testing.T) {
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
			op.TakeTurns(func(_ context.Context, read func()) bool {
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

package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/session"
	"tideline/live"
)

// The tests in this file are complaints of the users of other networks; see feed/complaints_test.go.

// Each entry of a timeline says why it is there: on a page in either order, in an event, and in the answer
// to the mutation that made it. So a client tells reposts from posts.
func TestTheReasonIsOnEveryEntry(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		_, bob := c.signUp("bob")
		const (
			post   = `mutation($v: CreatePostInput!) { createPost(input: $v) { post { id } edge { reason { kind by { handle } at } node { createdAt } } } }`
			repost = `mutation($v: ID!) { repost(input: {postId: $v}) { edge { reason { kind by { handle } at } node { id createdAt } } } }`
			page   = `query($o: TimelineOrder!) { timeline(order: $o) { edges { node { id createdAt } reason { kind by { handle } at } } } }`
			events = `subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { id createdAt } reason { kind by { handle } at } } } } }`
		)
		_, cat := c.signUp("cat")
		c.Befriend(ann, bob)
		c.Follow(cat, ann)
		c.viewer = ann
		one, other := c.subscribe(bob, events, nil), c.subscribe(ann, events, nil) // they share events
		want := map[any]string{}
		var ids []any // in the order of the posts
		made := func(edge any, id any, kind string) any {
			t := c.t
			t.Helper()
			e := edge.(map[string]any)
			require.Equal(t, map[string]any{"kind": kind, "by": map[string]any{"handle": "ann"}, "at": e["node"].(map[string]any)["createdAt"]}, e["reason"])
			want[id], ids = kind, append(ids, id)
			return id
		}
		create := func(input map[string]any, kind string) any {
			a := c.get("createPost", post, map[string]any{"v": input}).(map[string]any)
			return made(a["edge"], a["post"].(map[string]any)["id"], kind)
		}
		root := create(map[string]any{"text": "root"}, "POST")
		create(map[string]any{"text": "look", "quoteOf": root}, "POST")
		reply := create(map[string]any{"text": "reply", "replyTo": root}, "REPLY")
		for _, original := range []any{root, reply} {
			edge := c.get("repost.edge", repost, map[string]any{"v": original}).(map[string]any)
			made(edge, edge["node"].(map[string]any)["id"], "REPOST")
		}
		is := func(edge any) any {
			c.t.Helper()
			e := edge.(map[string]any)
			id := e["node"].(map[string]any)["id"]
			require.Equal(c.t, map[string]any{"kind": want[id], "by": map[string]any{"handle": "ann"}, "at": e["node"].(map[string]any)["createdAt"]}, e["reason"])
			return id
		}
		c.viewer = cat
		for _, order := range []string{"LATEST", "RANKED"} {
			edges := c.get("timeline.edges", page, map[string]any{"o": order}).([]any)
			require.Len(c.t, edges, len(want))
			for _, edge := range edges {
				is(edge)
			}
		}
		for _, id := range ids {
			_, number, ok := ent.ParseNodeID(id.(string))
			require.True(c.t, ok)
			_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: number, Author: ann.ID}, []int64{ann.ID, bob.ID})
			require.NoError(c.t, err)
			for _, s := range []subscriber{one, other} {
				require.Equal(c.t, id, is(s.next()["edge"]))
			}
		}
	})
}

// A quote shows the quoted post with its author's consent, which can be withdrawn. What is withheld has a
// state for each viewer, so that an app can say why there is nothing.
func TestAQuoteIsConsentThatCanBeWithdrawn(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		_, bob := c.signUp("bob")
		_, cat := c.signUp("cat")
		c.Follow(bob, ann)
		const (
			post     = `mutation($v: CreatePostInput!) { createPost(input: $v) { post { id } } }`
			read     = `query($v: ID!) { post(id: $v) { quote { state post { text } } } }`
			narrow   = `mutation($v: ID!, $to: Visibility!) { setPostVisibility(input: {postId: $v, visibility: $to}) { post { id } } }`
			withdraw = `mutation($v: ID!) { withdrawQuote(input: {postId: $v}) { post { quote { state post { id } } } } }`
		)
		create := func(input map[string]any) any {
			return c.get("createPost.post.id", post, map[string]any{"v": input})
		}
		c.viewer = ann
		quoted, other := create(map[string]any{"text": "quoted"}), create(map[string]any{"text": "another"})
		c.viewer = bob
		quote, second, plain := create(map[string]any{"text": "look", "quoteOf": quoted}), create(map[string]any{"text": "and", "quoteOf": other}), create(map[string]any{"text": "no quote"})
		shown := map[string]any{"state": "SHOWN", "post": map[string]any{"text": "quoted"}}
		gone, withdrawn := map[string]any{"state": "NOT_AVAILABLE", "post": nil}, map[string]any{"state": "WITHDRAWN", "post": nil}
		sees := func(v session.Viewer, id, want any) {
			c.t.Helper()
			c.viewer = v
			require.Equal(c.t, want, c.get("post.quote", read, map[string]any{"v": id}))
		}
		for _, v := range []session.Viewer{ann, bob, cat, {}} {
			sees(v, quote, shown)
			sees(v, plain, nil)
		}
		c.viewer = ann
		c.get("setPostVisibility.post.id", narrow, map[string]any{"v": quoted, "to": "FOLLOWERS"})
		sees(ann, quote, shown)
		sees(bob, quote, shown)
		sees(cat, quote, gone)
		sees(session.Viewer{}, quote, gone)
		c.refused("UNAUTHENTICATED", withdraw, map[string]any{"v": quote})
		c.viewer = bob
		c.refused("NOT_FOUND", withdraw, map[string]any{"v": quote})
		c.viewer = ann
		require.Equal(c.t, withdrawn, c.get("withdrawQuote.post.quote", withdraw, map[string]any{"v": quote}))
		c.get("setPostVisibility.post.id", narrow, map[string]any{"v": quoted, "to": "PUBLIC"})
		c.get("deletePost.deletedPostId", `mutation($v: ID!) { deletePost(input: {postId: $v}) { deletedPostId } }`, map[string]any{"v": other})
		for _, v := range []session.Viewer{ann, bob, cat, {}} {
			sees(v, quote, withdrawn)
			sees(v, second, gone)
		}
	})
}

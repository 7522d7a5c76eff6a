package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
)

// A client reads a page of replies, subscribes from its position, and sees what happens, also in the
// fields that need queries of their own.
func TestConversationEvents(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		c.Work()
		ann, bob := c.User("ann"), c.User("bob")
		root := c.Post(ann, schema.Public)
		id := ent.NodeID("Post", root)
		c.viewer = bob
		read := func() map[string]any {
			page := c.do(`query($id: ID!) { node(id: $id) { ... on Post { author { posts { position } }
				conversation { ...p } replies { ...p } reposts { position } } } } fragment p on PostConnection { position nodes { id } }`, map[string]any{"id": id})
			require.Empty(c.t, page.Errors)
			return page.Data["node"].(map[string]any)
		}
		found := read()
		for _, list := range []any{found["reposts"], found["author"].(map[string]any)["posts"]} {
			require.Nil(c.t, list.(map[string]any)["position"])
		}
		reply := func(text string) string {
			p, err := c.Feed.CreatePost(c.ctx, ann, feed.Draft{Text: text, ReplyTo: root})
			require.NoError(c.t, err)
			return ent.NodeID("Post", p.ID)
		}
		var missed string
		const query = `subscription($id: ID!, $after: Cursor) { e: conversationEvents(postId: $id, after: $after) { __typename
			... on ConversationPostAdded { post { ...p } position }
			... on ConversationPostUpdated { post { ...p } position }
			... on ConversationPostRemoved { postId position }
			... on ConversationInvalidated { reason position } } }
			fragment p on Post { id text viewerHasLiked likeCount author { handle } replyTo { id } root { text } viewerCanReply data mentions { start } }`
		for _, list := range []string{"conversation", "replies"} {
			after := read()[list].(map[string]any)["position"].(string)
			missed = reply("missed")
			c.Drain()
			s := c.subscribe(bob, query, map[string]any{"id": id, "after": after})
			event := s.next()
			require.Equal(c.t, "ConversationPostAdded", event["__typename"])
			post := event["post"].(map[string]any)
			require.Equal(c.t, missed, post["id"])
			require.Equal(c.t, map[string]any{"handle": "ann"}, post["author"])
			require.Equal(c.t, map[string]any{"id": id}, post["replyTo"])
			require.Equal(c.t, false, post["viewerHasLiked"])

			live := reply("live in " + list)
			c.Drain()
			require.Equal(c.t, live, s.next()["post"].(map[string]any)["id"])
			_, live64, _ := ent.ParseNodeID(live)
			text := "edited"
			_, err := c.Feed.UpdatePost(c.ctx, ann, live64, feed.Edit{Text: &text})
			require.NoError(c.t, err)
			c.Drain()
			event = s.next()
			require.Equal(c.t, "ConversationPostUpdated", event["__typename"])
			require.Equal(c.t, text, event["post"].(map[string]any)["text"])
			require.NoError(c.t, c.Feed.DeletePost(c.ctx, ann, live64))
			c.Drain()
			event = s.next()
			require.Equal(c.t, "ConversationPostRemoved", event["__typename"])
			require.Equal(c.t, live, event["postId"])
		}
		s := c.subscribe(bob, query, map[string]any{"id": missed})
		_, err := c.Feed.SetVisibility(c.ctx, ann, root, schema.Private)
		require.NoError(c.t, err)
		c.Drain()
		require.Equal(c.t, "ConversationInvalidated", s.next()["__typename"])
		c.viewer = bob
		for _, hidden := range []string{id, missed, ent.NodeID("Post", 1)} {
			require.Equal(c.t, "NOT_FOUND", c.unsubscribed(bob, hidden))
		}
		require.Equal(c.t, "BAD_USER_INPUT", c.unsubscribed(bob, "x"))
		require.Equal(c.t, "UNAUTHENTICATED", c.unsubscribed(session.Viewer{}, id))
	})
}

// unsubscribed returns the code with which the server refuses the events of a conversation.
func (c *client) unsubscribed(v session.Viewer, post string) any {
	c.t.Helper()
	op, errs := c.engine.Prepare(c.ctx, exec.Request{
		Query: `subscription($post: ID!) { conversationEvents(postId: $post) { __typename } }`, Variables: map[string]any{"post": post},
	})
	require.Empty(c.t, errs)
	_, errs = c.engine.Subscribe(graph.WithViewer(c.ctx, v), op, func() {})
	require.Len(c.t, errs, 1)
	return errs[0].Extensions["code"]
}

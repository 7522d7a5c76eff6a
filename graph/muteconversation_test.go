package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/session"
)

// A viewer mutes a conversation by any of its posts, and each post says so to the viewer alone. Of a post
// that the viewer may not see there is no answer, whether it exists or not.
func TestMuteConversation(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		_, bob := c.signUp("bob")
		const (
			post   = `mutation($v: CreatePostInput!) { createPost(input: $v) { post { id } } }`
			mute   = `mutation($v: ID!) { muteConversation(input: {postId: $v}) { post { id viewerHasMutedConversation root { viewerHasMutedConversation } } } }`
			unmute = `mutation($v: ID!) { unmuteConversation(input: {postId: $v}) { post { viewerHasMutedConversation } } }`
			thread = `query($v: ID!) { post(id: $v) { viewerHasMutedConversation conversation { nodes { viewerHasMutedConversation } } } }`
			narrow = `mutation($v: ID!) { setPostVisibility(input: {postId: $v, visibility: PRIVATE}) { post { id } } }`
		)
		one := func(v any) map[string]any { return map[string]any{"v": v} }
		muted := func(is bool) map[string]any { return map[string]any{"viewerHasMutedConversation": is} }
		c.viewer = bob
		root := c.get("createPost.post.id", post, one(map[string]any{"text": "root"}))
		reply := c.get("createPost.post.id", post, one(map[string]any{"text": "reply", "replyTo": root}))
		c.viewer = ann
		require.Equal(t, map[string]any{"id": reply, "viewerHasMutedConversation": true, "root": muted(true)}, c.get("muteConversation.post", mute, one(reply)))
		for v, is := range map[session.Viewer]bool{ann: true, bob: false, {}: false} {
			c.viewer = v
			require.Equal(t, map[string]any{"viewerHasMutedConversation": is, "conversation": map[string]any{"nodes": []any{muted(is)}}}, c.get("post", thread, one(root)))
		}
		c.viewer = session.Viewer{}
		c.refused("UNAUTHENTICATED", mute, one(root))
		c.viewer = bob
		c.get("setPostVisibility.post.id", narrow, one(root))
		c.viewer = ann
		for _, id := range []any{root, reply, ent.NodeID("Post", 1<<52)} {
			require.Nil(t, c.get("muteConversation.post", mute, one(id)))
			require.Nil(t, c.get("unmuteConversation.post", unmute, one(id)))
		}
		require.Zero(t, c.s.DB.MutedConversation.Query().CountX(c.ctx))
		c.refused("BAD_USER_INPUT", mute, one(ent.NodeID("User", ann.ID)))
	})
}

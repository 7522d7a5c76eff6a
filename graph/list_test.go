package graph_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
	"tideline/feed/moderation"
	"tideline/feed/session"
)

// Users see their own lists of blocks, mutes, requests and likes. The lists of other
// users do not exist for them.
func TestOwnListsOverTheAPI(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		bobID, bob := c.signUp("bob")
		c.get("updateProfile.user.id", `mutation { updateProfile(input: {approvesFollowers: true}) { user { id } } }`, nil)
		post := c.get("createPost.post.id", createPost, map[string]any{"text": "hello", "visibility": "PUBLIC"})
		_, ann := c.signUp("ann")
		on := map[string]any{"user": bobID, "post": post}
		const lists = `query($handle: String!) { user(handle: $handle) {
			blocked { ...users } muted { ...users } sentRequests { ...users }
			mutedConversations { nodes { viewerHasMutedConversation } }
			likedPosts { nodes { text viewerHasLiked author { handle } } edges { cursor } pageInfo { hasNextPage } } } }
			fragment users on UserConnection { nodes { handle relationship { blocking muting requested } } edges { cursor } pageInfo { hasNextPage } }`
		of := func(list string) []any {
			c.t.Helper()
			return c.get("user."+list+".nodes", lists, map[string]any{"handle": "ann"}).([]any)
		}
		require.Empty(c.t, c.do(`mutation($user: ID!, $post: ID!) { follow(input: {userId: $user}) { user { id } }
			mute(input: {userId: $user}) { user { id } } muteConversation(input: {postId: $post}) { post { id } } likePost(input: {postId: $post}) { post { id } } }`, on).Errors)
		like := map[string]any{"text": "hello", "viewerHasLiked": true, "author": map[string]any{"handle": "bob"}}
		toBob := map[string]any{"handle": "bob", "relationship": map[string]any{"blocking": false, "muting": true, "requested": true}}
		require.Equal(c.t, []any{like}, of("likedPosts"))
		require.Equal(c.t, []any{map[string]any{"viewerHasMutedConversation": true}}, of("mutedConversations"))
		require.Equal(c.t, []any{toBob}, of("muted"))
		require.Equal(c.t, []any{toBob}, of("sentRequests"))
		require.Empty(c.t, of("blocked"))

		// Nobody else sees a list, and ann cannot see bob's.
		for _, of := range []struct {
			viewer session.Viewer
			handle string
		}{{bob, "ann"}, {session.Viewer{}, "ann"}, {ann, "bob"}} {
			c.viewer = of.viewer
			require.Equal(c.t, map[string]any{"blocked": nil, "muted": nil, "sentRequests": nil, "likedPosts": nil, "mutedConversations": nil},
				c.get("user", lists, map[string]any{"handle": of.handle}))
		}
		c.viewer = ann
		require.Empty(c.t, c.do(`mutation($user: ID!) { block(input: {userId: $user}) { user { id } } }`, on).Errors)
		require.Len(c.t, of("blocked"), 1)
		require.Empty(c.t, of("sentRequests"))
		require.Empty(c.t, of("likedPosts"))
	})
}

// Suggestions are complete users, and only for signed-in viewers.
func TestSuggestionsOverTheAPI(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		_, bob := c.signUp("bob")
		catID, cat := c.signUp("cat")
		_, _ = c.signUp("dan")
		_, ann := c.signUp("ann")
		const suggested = `query($first: Int) { suggestedUsers(first: $first) { handle followerCount posts { nodes { text } } relationship { following followedBy } } }`
		c.viewer = bob
		require.Empty(c.t, c.do(`mutation($user: ID!) { follow(input: {userId: $user}) { user { id } } }`, map[string]any{"user": catID}).Errors)
		c.viewer = cat
		c.get("createPost.post.id", createPost, map[string]any{"text": "for all", "visibility": "PUBLIC"})
		c.get("createPost.post.id", createPost, map[string]any{"text": "for followers", "visibility": "FOLLOWERS"})
		c.viewer = ann
		list := c.get("suggestedUsers", suggested, nil).([]any)
		require.Len(c.t, list, 3)
		require.Equal(c.t, map[string]any{
			"handle": "cat", "followerCount": 1.0, "posts": map[string]any{"nodes": []any{map[string]any{"text": "for all"}}},
			"relationship": map[string]any{"following": false, "followedBy": false},
		}, list[0])
		require.Len(c.t, c.get("suggestedUsers", suggested, map[string]any{"first": 2}), 2)
		require.Equal(c.t, "OUT_OF_RANGE", c.do(suggested, map[string]any{"first": 0}).Errors[0].Extensions["reason"])
		c.viewer = session.Viewer{}
		require.Equal(c.t, "UNAUTHENTICATED", c.do(suggested, nil).Errors[0].Extensions["code"])
	})
}

// The payload has the user as they are after the mutation.
func TestRemoveFollowerOverTheAPI(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		fanID, fan := c.signUp("fan")
		annID, ann := c.signUp("ann")
		c.Follow(fan, ann)
		const remove = `mutation($user: ID!) { removeFollower(input: {userId: $user}) { user { handle followingCount } relationship { followedBy } } }`
		require.Equal(c.t, map[string]any{
			"user": map[string]any{"handle": "fan", "followingCount": 0.0}, "relationship": map[string]any{"followedBy": false},
		}, c.get("removeFollower", remove, map[string]any{"user": fanID}))
		require.EqualValues(c.t, 0, c.get("viewer.followerCount", `{ viewer { followerCount } }`, nil))
		c.refused("BAD_USER_INPUT", remove, map[string]any{"user": annID})
		c.refused("NOT_FOUND", remove, map[string]any{"user": globalID("User:1")})
		c.viewer = session.Viewer{}
		c.refused("UNAUTHENTICATED", remove, map[string]any{"user": fanID})
	})
}

// A relationship is a node of its viewer. The payload of a mutation equals the node with its
// id, and nobody else can look it up.
func TestRelationshipIsANodeOfItsViewer(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		bobID, bob := c.signUp("bob")
		catID, cat := c.signUp("cat")
		annID, ann := c.signUp("ann")
		const fields = `{ id following followedBy mutual blocking muting requested }`
		const node = `query($id: ID!) { node(id: $id) { __typename id ... on Relationship ` + fields + ` } }`
		of := func(handle string) any {
			c.t.Helper()
			return c.get("user.relationship.id", `query($h: String!) { user(handle: $h) { relationship { id } } }`, map[string]any{"h": handle})
		}
		c.Follow(bob, ann)
		id := of("bob")
		for _, mutation := range []string{"follow", "mute", "unmute", "unfollow", "removeFollower", "block", "unblock"} {
			payload := c.get(mutation, `mutation($u: ID!) { `+mutation+`(input: {userId: $u}) { user { id relationship `+fields+` } relationship `+fields+` } }`,
				map[string]any{"u": bobID}).(map[string]any)
			relationship := payload["relationship"].(map[string]any)
			require.Equal(c.t, map[string]any{"id": bobID, "relationship": relationship}, payload["user"], mutation)
			require.Equal(c.t, id, relationship["id"], mutation)
			relationship["__typename"] = "Relationship"
			require.Equal(c.t, relationship, c.get("node", node, map[string]any{"id": id}), mutation)
		}

		ids := map[string]any{"ids": []any{of("cat"), annID, id, globalID("Relationship:1:2"), of("ann"), id, bobID}}
		const nodes = `query($ids: [ID!]!) { nodes(ids: $ids) { id ... on Relationship { following } } }`
		found := func(id any) any { return map[string]any{"id": id, "following": false} }
		user := func(id any) any { return map[string]any{"id": id} }
		require.Equal(c.t, []any{found(of("cat")), user(annID), found(id), nil, found(of("ann")), found(id), user(bobID)}, c.get("nodes", nodes, ids))

		for _, other := range []session.Viewer{bob, cat, {}} { // including the other user of the relationship
			c.viewer = other
			require.Nil(c.t, c.get("node", node, map[string]any{"id": id}))
			require.Equal(c.t, []any{nil, user(annID), nil, nil, nil, nil, user(bobID)}, c.get("nodes", nodes, ids))
		}
		require.Nil(c.t, c.get("node", node, map[string]any{"id": globalID(fmt.Sprint("Relationship:0:", bob.ID))}))
		c.viewer = bob
		require.NotEqual(c.t, id, of("ann"), "each has their own")

		c.viewer = ann
		for _, none := range []string{
			fmt.Sprint("Relationship:", ann.ID), fmt.Sprint("Relationship:", ann.ID, ":", 1), fmt.Sprint("Relationship:0", ann.ID, ":", bob.ID),
			fmt.Sprint("Relationship:", ann.ID, ":0", bob.ID), fmt.Sprint("Relationship:", ann.ID, ":", bob.ID, ":", bob.ID),
		} {
			require.Nil(c.t, c.get("node", node, map[string]any{"id": globalID(none)}), none)
		}
		c.refused("BAD_USER_INPUT", `mutation($u: ID!) { follow(input: {userId: $u}) { user { id } } }`, map[string]any{"u": id})
		_, err := c.Moderation.Suspend(c.ctx, moderation.Console, bob.ID, "", account.Suspension{})
		require.NoError(c.t, err)
		require.Nil(c.t, c.get("node", node, map[string]any{"id": id}), "nobody sees bob")
		require.NotNil(c.t, c.get("node", `query($id: ID!) { node(id: $id) { id } }`, map[string]any{"id": catID}))
	})
}

// A post lists its tags, and a tag lists its posts in pages.
func TestTaggedPosts(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		c.viewer = ann
		require.Equal(c.t, []any{"tide", "潮水"}, c.get("createPost.post.tags", `mutation { createPost(input: {text: "1 #Tide #潮水 #TIDE"}) { post { tags } } }`, nil))
		require.Equal(c.t, []any{}, c.get("createPost.post.tags", `mutation { createPost(input: {text: "2 tide"}) { post { tags } } }`, nil))
		for i := 3; i < 6; i++ {
			c.get("createPost.post.id", fmt.Sprintf(`mutation { createPost(input: {text: "%d #tide"}) { post { id } } }`, i), nil)
		}
		c.viewer = session.Viewer{}
		const query = `query($tag: String!, $after: Cursor) { taggedPosts(tag: $tag, first: 2, after: $after) { nodes { text tags author { handle } } pageInfo { hasNextPage endCursor } } }`
		first := c.do(query, map[string]any{"tag": "#Tide"})
		require.Empty(c.t, first.Errors)
		const nodes = "taggedPosts.nodes"
		post := func(text string, tags ...any) any {
			return map[string]any{"text": text, "tags": tags, "author": map[string]any{"handle": "ann"}}
		}
		require.Equal(c.t, []any{post("5 #tide", "tide"), post("4 #tide", "tide")}, first.at(nodes))
		require.Equal(c.t, true, first.at("taggedPosts.pageInfo.hasNextPage"))
		after := first.at("taggedPosts.pageInfo.endCursor")
		second := c.do(query, map[string]any{"tag": "tide", "after": after})
		require.Empty(c.t, second.Errors)
		require.Equal(c.t, []any{post("3 #tide", "tide"), post("1 #Tide #潮水 #TIDE", "tide", "潮水")}, second.at(nodes))
		require.Equal(c.t, false, second.at("taggedPosts.pageInfo.hasNextPage"))
		require.Equal(c.t, []any{}, c.get(nodes, query, map[string]any{"tag": "unknown"}))
		c.refused("BAD_USER_INPUT", query, map[string]any{"tag": "潮水", "after": after})
		bad := c.do(query, map[string]any{"tag": "two words"})
		require.Len(c.t, bad.Errors, 1)
		require.Equal(c.t, "tag", bad.Errors[0].Extensions["field"])
		require.Equal(c.t, "NOT_A_TAG", bad.Errors[0].Extensions["reason"])
	})
}

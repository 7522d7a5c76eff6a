package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/feed/account"
)

// What users block, mute, ask and like, they see of themselves. Of anybody else there is no
// such list.
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
			likedPosts { nodes { text viewerHasLiked author { handle } } edges { cursor } pageInfo { hasNextPage } } } }
			fragment users on UserConnection { nodes { handle relationship { blocking muting requested } } edges { cursor } pageInfo { hasNextPage } }`
		of := func(list string) []any {
			c.t.Helper()
			return c.get("user."+list+".nodes", lists, map[string]any{"handle": "ann"}).([]any)
		}
		require.Empty(c.t, c.do(`mutation($user: ID!, $post: ID!) { follow(input: {userId: $user}) { user { id } }
			mute(input: {userId: $user}) { user { id } } likePost(input: {postId: $post}) { post { id } } }`, on).Errors)
		like := map[string]any{"text": "hello", "viewerHasLiked": true, "author": map[string]any{"handle": "bob"}}
		toBob := map[string]any{"handle": "bob", "relationship": map[string]any{"blocking": false, "muting": true, "requested": true}}
		require.Equal(c.t, []any{like}, of("likedPosts"))
		require.Equal(c.t, []any{toBob}, of("muted"))
		require.Equal(c.t, []any{toBob}, of("sentRequests"))
		require.Empty(c.t, of("blocked"))

		// Nobody else is told, nor can ann look into bob's.
		for _, of := range []struct {
			viewer account.Viewer
			handle string
		}{{bob, "ann"}, {account.Viewer{}, "ann"}, {ann, "bob"}} {
			c.viewer = of.viewer
			require.Equal(c.t, map[string]any{"blocked": nil, "muted": nil, "sentRequests": nil, "likedPosts": nil},
				c.get("user", lists, map[string]any{"handle": of.handle}))
		}
		c.viewer = ann
		require.Empty(c.t, c.do(`mutation($user: ID!) { block(input: {userId: $user}) { user { id } } }`, on).Errors)
		require.Len(c.t, of("blocked"), 1)
		require.Empty(c.t, of("sentRequests"))
		require.Empty(c.t, of("likedPosts"))
	})
}

// The payload has the user as the mutation left them.
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
		c.viewer = account.Viewer{}
		c.refused("UNAUTHENTICATED", remove, map[string]any{"user": fanID})
	})
}

package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/user"
	"tideline/feed/moderation"
	"tideline/storage/storagetest"
)

func TestModerationOverTheAPI(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	badID, bad := c.signUp("bad")
	post := c.get("createPost.post.id", createPost, map[string]any{"text": "hello", "visibility": "FOLLOWERS"})
	_, boss := c.signUp("boss")
	on := map[string]any{"user": badID, "post": post}
	const (
		suspend   = `mutation($user: ID!) { suspendUser(input: {userId: $user, note: "spam"}) { userId changed } }`
		unsuspend = `mutation($user: ID!) { unsuspendUser(input: {userId: $user}) { changed } }`
		hide      = `mutation($post: ID!) { hidePost(input: {postId: $post}) { postId changed } }`
		unhide    = `mutation($post: ID!) { unhidePost(input: {postId: $post}) { changed } }`
		setRole   = `mutation($user: ID!) { setRole(input: {userId: $user, role: MODERATOR}) { userId role } }`
		log       = `{ auditLog(first: 2) { pageInfo { hasNextPage } nodes { id actorId action subjectId note createdAt } } }`
		read      = `query($post: ID!) { post(id: $post) { visibility hiddenByModerators } }`
	)
	for _, query := range []string{suspend, unsuspend, hide, unhide, setRole} {
		c.refused("FORBIDDEN", query, on)
	}
	c.refused("FORBIDDEN", log, nil)
	_, err := c.Moderation.SetRole(c.ctx, moderation.Console, boss.ID, user.RoleADMIN, "")
	require.NoError(t, err)
	require.Equal(t, "ADMIN", c.get("viewer.role", `{ viewer { role } }`, nil))

	require.Equal(t, true, c.get("hidePost.changed", hide, on))
	require.Nil(t, c.get("post", read, on))
	c.viewer = bad
	require.Equal(t, map[string]any{"visibility": "FOLLOWERS", "hiddenByModerators": true}, c.get("post", read, on))
	c.refused("FORBIDDEN", `mutation($post: ID!) { setPostVisibility(input: {postId: $post, visibility: PUBLIC}) { post { id } } }`, on)
	c.viewer = boss
	require.Equal(t, true, c.get("unhidePost.changed", unhide, on))
	require.Equal(t, false, c.get("unhidePost.changed", unhide, on))
	require.Nil(t, c.get("user.role", `{ user(handle: "bad") { role } }`, nil))
	require.Equal(t, "MODERATOR", c.get("setRole.role", setRole, on))
	require.Equal(t, true, c.get("suspendUser.changed", suspend, on))
	require.Nil(t, c.get("user", `{ user(handle: "bad") { id } }`, nil))

	list := c.get("auditLog.nodes", log, nil).([]any)
	require.Len(t, list, 2)
	require.Subset(t, list[0], map[string]any{"action": "SUSPEND_USER", "subjectId": badID, "note": "spam"})
	require.Subset(t, list[1], map[string]any{"action": "SET_ROLE", "subjectId": badID})
	require.Equal(t, true, c.get("unsuspendUser.changed", unsuspend, on))
	require.Equal(t, true, c.get("auditLog.pageInfo.hasNextPage", log, nil))
}

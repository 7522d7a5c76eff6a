package graph_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An account's sessions, handle and password over the API.
func TestAccountOverTheAPI(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		id, ann := c.signUp("ann")
		c.do(`mutation { logIn(input: {handle: "ann", password: "correct horse"}) { token } }`, nil)
		const sessions = `query($id: ID!) { node(id: $id) { ... on User { sessions(first: 5) {
			nodes { id createdAt expiresAt current userAgent } edges { cursor } pageInfo { hasNextPage }
		} } } }`
		list := c.get("node.sessions.nodes", sessions, map[string]any{"id": id}).([]any)
		require.Len(t, list, 2)
		other, present := list[0].(map[string]any), list[1].(map[string]any)
		require.Equal(t, []any{false, true}, []any{other["current"], present["current"]})

		c.signUp("bob")
		require.Nil(t, c.get("node.sessions", sessions, map[string]any{"id": id}))
		const end = `mutation($id: ID!) { endSession(input: {sessionId: $id}) { endedSessionId } }`
		c.refused("NOT_FOUND", end, map[string]any{"id": other["id"]})
		c.viewer = ann
		c.refused("CONFLICT", `mutation { changeHandle(input: {handle: "bob"}) { user { id } } }`, nil)
		require.Equal(t, "anna", c.get("changeHandle.user.handle", `mutation { changeHandle(input: {handle: "Anna"}) { user { handle } } }`, nil))
		const change = `mutation($old: String!) { changePassword(input: {currentPassword: $old, newPassword: "battery staple"}) { endedSessions } }`
		c.refused("FORBIDDEN", change, map[string]any{"old": "wrong horse"})
		require.EqualValues(t, 1, c.get("changePassword.endedSessions", change, map[string]any{"old": "correct horse"}))
		c.refused("NOT_FOUND", end, map[string]any{"id": other["id"]})
		require.Equal(t, present["id"], c.get("endSession.endedSessionId", end, map[string]any{"id": present["id"]}))
		require.EqualValues(t, 0, c.get("logOutEverywhere.endedSessions", `mutation { logOutEverywhere { endedSessions } }`, nil))
	})
}

// The deletion, export and restoration of an account over the API.
func TestDeletionOverTheAPI(t *testing.T) {
	t.Parallel()
	each(t, func(c *client) {
		id, _ := c.signUp("ann")
		_, bob := c.signUp("bob")
		logIn := func(restored bool) {
			a := c.do(`mutation { logIn(input: {handle: "ann", password: "correct horse"}) { token restored } }`, nil)
			require.Equal(t, restored, a.at("logIn.restored"))
			v, _, err := c.Sessions.Authenticate(t.Context(), a.at("logIn.token").(string))
			require.NoError(t, err)
			c.viewer = v
		}
		logIn(false)
		const export = `mutation($p: String) { exportAccount(input: {password: $p}) { path expiresAt } }`
		c.refused("FORBIDDEN", export, map[string]any{"p": "wrong horse"})
		require.Contains(t, c.get("exportAccount.path", export, map[string]any{"p": "correct horse"}), "/account/export?secret=")
		const del = `mutation($p: String) { deleteAccount(input: {password: $p}) { restorableUntil } }`
		c.refused("FORBIDDEN", del, nil)
		require.NotNil(t, c.get("deleteAccount.restorableUntil", del, map[string]any{"p": "correct horse"}))
		c.viewer = bob
		require.Nil(t, c.get("node", `query($id: ID!) { node(id: $id) { id } }`, map[string]any{"id": id}))
		require.Nil(t, c.get("user", `{ user(handle: "ann") { id } }`, nil))
		logIn(true)
		c.viewer = bob
		require.Equal(t, id, c.get("user.id", `{ user(handle: "ann") { id } }`, nil))
	})
}

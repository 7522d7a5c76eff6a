package graph_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent/auditentry"
	"tideline/ent/user"
	"tideline/feed/account"
	"tideline/feed/apikey"
	"tideline/feed/moderation"
	"tideline/feed/session"
	"tideline/graph"
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
		suspend   = `mutation($user: ID!) { suspendUser(input: {userId: $user, note: "spam", reason: "You advertise.", until: "2999-01-02T03:04:05Z"}) { userId changed } }`
		unsuspend = `mutation($user: ID!) { unsuspendUser(input: {userId: $user}) { changed } }`
		hide      = `mutation($post: ID!) { hidePost(input: {postId: $post}) { postId changed } }`
		unhide    = `mutation($post: ID!) { unhidePost(input: {postId: $post}) { changed } }`
		setRole   = `mutation($user: ID!) { setRole(input: {userId: $user, role: MODERATOR}) { userId role } }`
		log       = `{ auditLog(first: 2) { pageInfo { hasNextPage } nodes { id actorId actorHandle action subjectId subjectHandle note roleBefore roleAfter decision reason until imported jobCount jobIds processId createdAt } } }`
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
	const role = `{ user(handle: "bad") { role } }`
	require.Equal(t, "USER", c.get("user.role", role, nil))
	require.Equal(t, "MODERATOR", c.get("setRole.role", setRole, on))
	require.Equal(t, "MODERATOR", c.get("user.role", role, nil))
	c.signUp("nobody")
	require.Nil(t, c.get("user.role", role, nil))
	c.viewer = boss
	require.Equal(t, true, c.get("suspendUser.changed", suspend, on))
	require.Nil(t, c.get("user", `{ user(handle: "bad") { id } }`, nil))

	list := c.get("auditLog.nodes", log, nil).([]any)
	require.Len(t, list, 2)
	require.Subset(t, list[0], map[string]any{"action": "SUSPEND_USER", "subjectId": badID, "note": "spam", "until": "2999-01-02T03:04:05.000Z", "reason": "You advertise.", "roleBefore": nil, "decision": nil, "jobCount": nil, "jobIds": nil})
	answer := c.do(`mutation { logIn(input: {handle: "bad", password: "correct horse"}) { token } }`, nil)
	require.Subset(t, answer.Errors[0].Extensions, map[string]any{"code": "FORBIDDEN", "reason": "SUSPENDED", "explanation": "You advertise.", "until": "2999-01-02T03:04:05Z"})
	require.Subset(t, list[1], map[string]any{"action": "SET_ROLE", "subjectId": badID, "actorHandle": "boss", "subjectHandle": "bad",
		"roleBefore": "USER", "roleAfter": "MODERATOR", "reason": nil, "until": nil})
	require.Equal(t, true, c.get("unsuspendUser.changed", unsuspend, on))
	require.Equal(t, true, c.get("auditLog.pageInfo.hasNextPage", log, nil))
	require.NoError(t, c.Moderation.Operate(c.ctx, moderation.Console, moderation.OfJobs(auditentry.ActionRETRY_JOBS, []int64{8, 7}, ""), func(context.Context) error { return nil }))
	require.Subset(t, c.get("auditLog.nodes", log, nil).([]any)[0], map[string]any{"action": "RETRY_JOBS", "actorId": nil, "jobCount": 2.0, "jobIds": []any{"8", "7"}, "until": nil, "processId": nil})
}

// An API key moderates for an admin only with the scope Moderate. It cannot grant roles, and it is named in
// the audit log. It exports accounts only with both other scopes.
func TestKeysModerateByAScopeOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	badID, _ := c.signUp("bad")
	post := c.get("createPost.post.id", createPost, map[string]any{"text": "hello", "visibility": "PUBLIC"}).(string)
	_, boss := c.signUp("boss")
	_, err := c.Moderation.SetRole(c.ctx, moderation.Console, boss.ID, user.RoleADMIN, "")
	require.NoError(t, err)
	const (
		setRole = `mutation { setRole(input: {userId: "USER", role: ADMIN}) { role } }`
		export  = `mutation { exportAccount(input: {}) { path } }`
	)
	as := func(scopes ...apikey.Scope) {
		c.viewer = session.Viewer{ID: boss.ID, Session: -7, Key: &apikey.Key{ID: 7, Scopes: scopes}}
	}
	refused := func(reason, query string) {
		t.Helper()
		a := c.do(strings.NewReplacer("USER", badID, "POST", post).Replace(query), nil)
		require.Len(t, a.Errors, 1, "%s: %v", query, a.Data)
		require.Equal(t, reason, a.Errors[0].Extensions["reason"], query)
	}
	as(apikey.Read, apikey.Write, apikey.Import, apikey.Manage)
	for _, query := range []string{
		`{ reports { nodes { id } } }`, `{ report(id: "USER") { id } }`, `{ suspension(handle: "bad") { handle } }`, `{ suspensions { nodes { handle } } }`, `{ auditLog { nodes { id } } }`, setRole,
		`mutation { suspendUser(input: {userId: "USER"}) { changed } }`, `mutation { unsuspendUser(input: {userId: "USER"}) { changed } }`,
		`mutation { hidePost(input: {postId: "POST"}) { changed } }`, `mutation { unhidePost(input: {postId: "POST"}) { changed } }`,
		`mutation { claimReport(input: {reportId: "USER"}) { report { id } } }`, `mutation { decideReport(input: {reportId: "USER", decision: UPHELD}) { decided } }`,
	} {
		refused("SCOPE_MISSING", query)
	}
	as(apikey.Moderate)
	refused("NOT_BY_KEY", setRole)
	refused("SCOPE_MISSING", `{ viewer { id } }`)
	refused("SCOPE_MISSING", `mutation { follow(input: {userId: "USER"}) { user { id } } }`)
	require.Empty(t, c.get("reports.nodes", `{ reports { nodes { id } } }`, nil))
	require.Empty(t, c.get("suspensions.nodes", `{ suspensions { nodes { handle } } }`, nil))
	require.Nil(t, c.get("suspension", `{ suspension(handle: "bad") { handle } }`, nil))
	require.Equal(t, true, c.get("suspendUser.changed", fmt.Sprintf(`mutation { suspendUser(input: {userId: %q}) { changed } }`, badID), nil))
	const log = `{ auditLog { nodes { action apiKeyId } } }`
	list := c.get("auditLog.nodes", log, nil).([]any)
	require.Equal(t, []any{map[string]any{"action": "SUSPEND_USER", "apiKeyId": "tk_7"}, map[string]any{"action": "SET_ROLE", "apiKeyId": nil}}, list)

	as(apikey.Write)
	refused("SCOPE_MISSING", export)
	as(apikey.Read)
	refused("SCOPE_MISSING", export)
	as(apikey.Read, apikey.Write)
	require.NotEmpty(t, c.get("exportAccount.path", export, nil))
}

func TestReportsOverTheAPI(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	badID, bad := c.signUp("bad")
	post := c.get("createPost.post.id", createPost, map[string]any{"text": "buy this", "visibility": "PUBLIC"})
	postID, err := graph.PostID(post.(string))
	require.NoError(t, err)
	goodID, good := c.signUp("good")
	_, mod := c.signUp("mod")
	_, err = c.Moderation.SetRole(c.ctx, moderation.Console, mod.ID, user.RoleMODERATOR, "")
	require.NoError(t, err)
	const (
		reportPost = `mutation($post: ID!) { reportPost(input: {postId: $post, reason: SPAM, comment: "an advertisement"}) { reported } }`
		reportUser = `mutation($user: ID!) { reportUser(input: {userId: $user, reason: OTHER}) { reported } }`
		reports    = `query($status: ReportStatus) { reports(status: $status) { pageInfo { hasNextPage } edges { cursor } nodes {
			id reporterId reporter { handle } reportedId reported { handle } suspension { handle name reason } postId post { text hiddenByModerators author { handle } }
			text reason comment status claimedById claimedBy { handle } claimedUntil decidedAt decidedById decidedBy { handle } note createdAt } } }`
		one    = `query($report: ID!) { report(id: $report) { text post { text hiddenByModerators } suspension { handle reason } claimedBy { handle } } }`
		claim  = `mutation($report: ID!) { claimReport(input: {reportId: $report}) { report { status claimedById claimedUntil reported { handle } } } }`
		decide = `mutation($report: ID!) { decideReport(input: {reportId: $report, decision: UPHELD, note: "hidden"}) { decided report { status note decidedAt claimedById } } }`
	)
	about := map[string]any{"post": post, "user": badID}
	c.viewer = good
	require.Equal(t, true, c.get("reportPost.reported", reportPost, about))
	require.Equal(t, false, c.get("reportPost.reported", reportPost, about))
	require.Equal(t, true, c.get("reportUser.reported", reportUser, about))
	c.refused("BAD_USER_INPUT", reportUser, map[string]any{"user": post})
	c.refused("BAD_USER_INPUT", reportUser, map[string]any{"user": goodID})
	c.refused("FORBIDDEN", reports, nil)
	c.viewer = bad
	c.refused("BAD_USER_INPUT", reportPost, about)

	c.viewer = mod
	list := c.get("reports.nodes", reports, map[string]any{"status": nil}).([]any)
	require.Len(t, list, 2)
	first := list[0].(map[string]any)
	require.Subset(t, first, map[string]any{
		"reporterId": goodID, "reporter": map[string]any{"handle": "good"}, "reportedId": badID, "reported": map[string]any{"handle": "bad"},
		"postId": post, "text": "buy this", "reason": "SPAM", "comment": "an advertisement", "status": "OPEN", "claimedById": nil, "decidedAt": nil, "decidedById": nil, "decidedBy": nil,
		"post": map[string]any{"text": "buy this", "hiddenByModerators": false, "author": map[string]any{"handle": "bad"}}, "claimedBy": nil, "suspension": nil,
	})
	require.Subset(t, list[1], map[string]any{"postId": nil, "post": nil, "text": nil, "reason": "OTHER", "comment": ""})
	on := map[string]any{"report": first["id"]}
	require.Equal(t, "bad", c.get("claimReport.report.reported.handle", claim, on))
	_, err = c.Moderation.HidePost(c.ctx, moderation.Console, postID, "")
	require.NoError(t, err)
	_, err = c.Moderation.Suspend(c.ctx, moderation.Console, bad.ID, "", account.Suspension{Reason: "You advertise."})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"text": "buy this", "post": map[string]any{"text": "buy this", "hiddenByModerators": true},
		"suspension": map[string]any{"handle": "bad", "reason": "You advertise."}, "claimedBy": map[string]any{"handle": "mod"},
	}, c.get("report", one, on))
	require.Equal(t, map[string]any{"userId": badID, "handle": "bad", "name": "bad", "reason": "You advertise.", "until": nil},
		c.get("suspension", `{ suspension(handle: "bad") { userId handle name reason until } }`, nil))
	require.Equal(t, []any{map[string]any{"handle": "bad"}}, c.get("suspensions.nodes", `{ suspensions(first: 5) { nodes { handle } } }`, nil))
	c.viewer = good
	c.refused("FORBIDDEN", one, on)
	c.viewer = mod
	for _, id := range []any{"UmVwb3J0Ojk5OTk", "nothing", post} {
		require.Nil(t, c.get("report", one, map[string]any{"report": id}))
	}
	_, err = c.Moderation.Unsuspend(c.ctx, moderation.Console, bad.ID, "")
	require.NoError(t, err)
	require.NoError(t, c.Feed.DeletePost(c.ctx, bad, postID))
	require.Nil(t, c.get("report.post", one, on))
	_, err = c.Moderation.Suspend(c.ctx, moderation.Console, bad.ID, "", account.Suspension{})
	require.NoError(t, err)
	require.EqualValues(t, 1, c.get("decideReport.decided", decide, on))
	require.EqualValues(t, 0, c.get("decideReport.decided", decide, on), "it may be repeated")
	c.refused("CONFLICT", claim, on)
	c.refused("NOT_FOUND", claim, map[string]any{"report": "UmVwb3J0Ojk5OTk"})
	c.refused("BAD_USER_INPUT", claim, map[string]any{"report": post})
	upheld := c.get("reports.nodes", reports, map[string]any{"status": "UPHELD"}).([]any)
	require.Len(t, upheld, 1)
	require.Subset(t, upheld[0], map[string]any{"reported": nil, "reportedId": badID, "status": "UPHELD", "note": "hidden", "claimedById": nil, "claimedBy": nil, "claimedUntil": nil, "decidedBy": map[string]any{"handle": "mod"}})
	require.NotNil(t, upheld[0].(map[string]any)["decidedById"])
	require.NotNil(t, upheld[0].(map[string]any)["decidedAt"])
	require.Nil(t, c.get("node", `query($id: ID!) { node(id: $id) { id } }`, map[string]any{"id": first["id"]}))
}

// A moderator reads the conversation of a reported reply in its report, and nobody else does.
func TestAReportShowsTheConversationOverTheAPI(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	const (
		reply   = `mutation($to: ID!, $text: String!, $v: Visibility) { createPost(input: {replyTo: $to, text: $text, visibility: $v}) { post { id } } }`
		report  = `mutation($post: ID!) { reportPost(input: {postId: $post, reason: SPAM}) { reported } }`
		reports = `{ reports { nodes { text
			ancestors { id authorId author { handle } text visibility hiddenByModerators editedAt replyToId } replies { id text visibility replyToId author { handle } } } } }`
	)
	annID, ann := c.signUp("ann")
	root := c.get("createPost.post.id", createPost, map[string]any{"text": "the root", "visibility": "PUBLIC"})
	_, bad := c.signUp("bad")
	about := c.get("createPost.post.id", reply, map[string]any{"to": root, "text": "buy this", "v": "PUBLIC"})
	_, good := c.signUp("good")
	below := c.get("createPost.post.id", reply, map[string]any{"to": about, "text": "go away", "v": "PRIVATE"})
	require.Equal(t, true, c.get("reportPost.reported", report, map[string]any{"post": about}))
	c.refused("FORBIDDEN", reports, nil)
	c.viewer = ann
	c.get("setPostVisibility.post.id", `mutation($id: ID!) { setPostVisibility(input: {postId: $id, visibility: PRIVATE}) { post { id } } }`, map[string]any{"id": root})
	c.viewer = bad
	c.get("updatePost.post.id", `mutation($id: ID!) { updatePost(input: {postId: $id, text: "hello"}) { post { id } } }`, map[string]any{"id": about})
	_, err := c.Moderation.Suspend(c.ctx, moderation.Console, good.ID, "", account.Suspension{})
	require.NoError(t, err)
	_, mod := c.signUp("mod")
	_, err = c.Moderation.SetRole(c.ctx, moderation.Console, mod.ID, user.RoleMODERATOR, "")
	require.NoError(t, err)
	require.Nil(t, c.get("post", `query($id: ID!) { post(id: $id) { id } }`, map[string]any{"id": root}))
	require.Equal(t, []any{map[string]any{
		"text": "buy this",
		"ancestors": []any{map[string]any{"id": root, "authorId": annID, "author": map[string]any{"handle": "ann"}, "text": "the root", "visibility": "PRIVATE",
			"hiddenByModerators": false, "editedAt": nil, "replyToId": nil}},
		"replies": []any{map[string]any{"id": below, "text": "go away", "visibility": "PRIVATE", "replyToId": about, "author": nil}},
	}}, c.get("reports.nodes", reports, nil))
}

// If a user blocks someone who is hidden from everybody, the answer has the relationship,
// and of the user only the id.
func TestHiddenUserIsBlockedOverTheAPI(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	badID, bad := c.signUp("bad")
	post := c.get("createPost.post.id", createPost, map[string]any{"text": "first", "visibility": "PUBLIC"})
	c.get("updatePost.post.id", `mutation($id: ID!) { updatePost(input: {postId: $id, text: "second"}) { post { id } } }`, map[string]any{"id": post})
	_, good := c.signUp("good")
	on := map[string]any{"user": badID, "post": post}
	c.get("follow.user.handle", `mutation($user: ID!) { follow(input: {userId: $user}) { user { handle } } }`, on)
	c.viewer = bad
	c.get("follow.user.handle", `mutation($user: ID!) { follow(input: {userId: $user}) { user { handle } } }`, map[string]any{"user": c.get("user.id", `{ user(handle: "good") { id } }`, nil)})
	_, err := c.Moderation.Suspend(c.ctx, moderation.Console, bad.ID, "", account.Suspension{})
	require.NoError(t, err)
	c.viewer = good
	const all = `user { id handle name bio avatarUrl links data followerCount followingCount postCount approvesFollowers
		posts { nodes { id } } followers { nodes { id } } following { nodes { id } } } relationship { following followedBy blocking muting }`
	nobody := map[string]any{
		"id": badID, "handle": "", "name": "", "bio": "", "avatarUrl": nil, "links": []any{}, "data": map[string]any{}, "approvesFollowers": false,
		"posts": map[string]any{"nodes": []any{}}, "followers": map[string]any{"nodes": []any{}}, "following": map[string]any{"nodes": []any{}},
	}
	for _, change := range []struct {
		name string
		left map[string]any
	}{
		{"mute", map[string]any{"following": true, "followedBy": true, "blocking": false, "muting": true}},
		{"removeFollower", map[string]any{"following": true, "followedBy": false, "blocking": false, "muting": true}},
		{"unfollow", map[string]any{"following": false, "followedBy": false, "blocking": false, "muting": true}},
		{"block", map[string]any{"following": false, "followedBy": false, "blocking": true, "muting": true}},
	} {
		answer := c.get(change.name, `mutation($user: ID!) { `+change.name+`(input: {userId: $user}) { `+all+` } }`, on).(map[string]any)
		require.Equal(t, change.left, answer["relationship"], change.name)
		require.Subset(t, answer["user"], nobody, change.name)
		for _, count := range []string{"followerCount", "followingCount", "postCount"} {
			require.EqualValues(t, 0, answer["user"].(map[string]any)[count], count)
		}
	}
	require.Nil(t, c.get("node", `query($user: ID!) { node(id: $user) { id } }`, on))
	c.refused("NOT_FOUND", `mutation($user: ID!) { follow(input: {userId: $user}) { user { id } } }`, on)

	require.Equal(t, true, c.get("reportPost.reported", `mutation($post: ID!) { reportPost(input: {postId: $post, reason: SPAM}) { reported } }`, on))
	require.Equal(t, true, c.get("reportUser.reported", `mutation($user: ID!) { reportUser(input: {userId: $user, reason: SPAM}) { reported } }`, on))
	_, err = c.Moderation.SetRole(c.ctx, moderation.Console, good.ID, user.RoleMODERATOR, "")
	require.NoError(t, err)
	reports := c.get("reports.nodes", `{ reports { nodes { text versions { nodes { text } } } } }`, nil)
	require.Equal(t, []any{
		map[string]any{"text": "second", "versions": map[string]any{"nodes": []any{map[string]any{"text": "first"}}}},
		map[string]any{"text": nil, "versions": nil},
	}, reports)
}

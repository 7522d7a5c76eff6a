package graph_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tideline/ent"
	"tideline/feed/session"
	"tideline/live"
)

var postByNewest = ent.Desc("id")

const draft = `mutation($v: CreatePostInput!) { createPost(input: $v) { post { id data author { data } } } }`

// The app's own fields of a post are returned in canonical form to everyone who sees the post,
// whether they were given in the document or in variables. Together with the text they identify
// the request of an idempotency key.
func TestDataOfPosts(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		_, bob := c.signUp("bob")
		c.viewer = ann
		given := map[string]any{"text": "with", "idempotencyKey": "k", "data": map[string]any{"b": json.Number("1.0"), "a": []any{nil, true, map[string]any{}}}}
		want := map[string]any{"a": []any{nil, true, map[string]any{}}, "b": 1.0}
		made := c.do(draft, map[string]any{"v": given})
		require.Empty(t, made.Errors)
		require.Equal(t, want, made.at("createPost.post.data"))
		id := made.at("createPost.post.id")
		given["data"] = map[string]any{"a": []any{nil, true, map[string]any{}}, "b": json.Number("1")}
		require.Equal(t, id, c.get("createPost.post.id", draft, map[string]any{"v": given}))
		for _, other := range []any{nil, map[string]any{}, map[string]any{"b": 2}} {
			given["data"] = other
			c.refused("CONFLICT", draft, map[string]any{"v": given})
		}
		require.Equal(t, map[string]any{}, c.get("createPost.post.data", `mutation { createPost(input: {text: "without"}) { post { data } } }`, nil))
		require.Equal(t, map[string]any{"a": "x", "n": []any{1.0, nil}}, c.get("createPost.post.data",
			`mutation($x: String) { createPost(input: {text: "written", data: {n: [1, null], a: $x}}) { post { data } } }`, map[string]any{"x": "x"}))
		for _, bad := range []string{`[]`, `1`, `"{}"`, `{a: {a: {a: {a: {a: {}}}}}}`, `{n: 9007199254740993}`, fmt.Sprintf(`{a: %q}`, strings.Repeat("x", 4096))} {
			c.refused("BAD_USER_INPUT", `mutation { createPost(input: {text: "bad", data: `+bad+`}) { post { id } } }`, nil)
		}
		c.viewer = bob
		require.Equal(t, want, c.get("post.data", `query($id: ID!) { post(id: $id) { data } }`, map[string]any{"id": id}))
		c.viewer = session.Viewer{}
		require.Equal(t, want, c.get("post.data", `query($id: ID!) { post(id: $id) { data } }`, map[string]any{"id": id}))
		c.viewer = ann
		require.Len(t, c.get("timeline.nodes", `{ timeline { nodes { data text author { data links avatarUrl } } } }`, nil), 3)
		c.get("deletePost.deletedPostId", `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, map[string]any{"id": id})
		require.Equal(t, 1, c.s.DB.PostData.Query().CountX(c.ctx), "it goes with the post")
	})
}

// A profile has links, an avatar if its host is allowed, and the app's own fields.
func TestProfileOfAUser(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		c.viewer = ann
		const change = `mutation($v: UpdateProfileInput!) { updateProfile(input: $v) { user { name avatarUrl links data } } }`
		update := func(v map[string]any) map[string]any {
			return c.get("updateProfile.user", change, map[string]any{"v": v}).(map[string]any)
		}
		all := map[string]any{"name": "ann", "avatarUrl": "https://img.example.org/ann.png",
			"links": []any{"https://ann.example", "http://b.example/?x=1"}, "data": map[string]any{"pronouns": "she"}}
		require.Equal(t, all, update(all))
		require.Equal(t, all, update(map[string]any{"name": "ann"}), "what is not given stays")
		require.Equal(t, all, c.get("user", `{ user(handle: "ann") { name avatarUrl links data } }`, nil))
		for name, bad := range map[string]map[string]any{
			"HOST_NOT_ALLOWED": {"avatarUrl": "https://elsewhere.example/a.png"},
			"NOT_A_URL":        {"links": []any{"javascript:alert(1)"}},
			"TOO_MANY":         {"links": []any{"https://a.example", "https://b.example", "https://c.example", "https://d.example", "https://e.example", "https://f.example"}},
			"TOO_LONG":         {"links": []any{"https://a.example/" + strings.Repeat("a", 200)}},
			"EMPTY":            {"links": []any{""}},
			"TOO_DEEP":         {"data": map[string]any{"a": []any{[]any{[]any{[]any{[]any{}}}}}}},
		} {
			a := c.do(change, map[string]any{"v": bad})
			require.Len(t, a.Errors, 1, name)
			require.Equal(t, name, a.Errors[0].Extensions["reason"], a.Errors[0].Message)
		}
		require.NoError(t, c.s.DB.User.UpdateOneID(ann.ID).SetAvatarURL("https://elsewhere.example/a.png").Exec(c.ctx))
		require.Nil(t, c.get("viewer.avatarUrl", `{ viewer { avatarUrl } }`, nil), "as it was before the hosts were set")
		none := map[string]any{"name": "ann", "avatarUrl": nil, "links": []any{}, "data": map[string]any{}}
		require.Equal(t, none, update(map[string]any{"avatarUrl": "", "links": []any{}, "data": map[string]any{}}))
		require.Zero(t, c.s.DB.UserData.Query().CountX(c.ctx))
	})
}

// A subscriber with the post receives an edit as an update. A subscriber who did not have it, because it
// contained a word they mute, receives it as a new post. Both select the same fields.
func TestEditsOverTheAPI(t *testing.T) {
	each(t, func(c *client) {
		c.Work()
		ann, bob, eve, max := c.User("ann"), c.User("bob"), c.User("eve"), c.User("max")
		for _, v := range []session.Viewer{bob, eve, max} {
			c.Follow(v, ann)
			c.AwaitInbox(v)
		}
		c.viewer = eve
		c.get("muteWord.word", `mutation { muteWord(input: {word: "cat"}) { word } }`, nil)
		c.Drain()
		const query = `subscription { e: timelineEvents(updates: true) { __typename
			... on TimelinePostAdded { position edge { cursor score node { id text data editedAt viewerHasLiked } } }
			... on TimelinePostUpdated { position edge { cursor score node { id text data editedAt viewerHasLiked } } } } }`
		var subscribers []subscriber
		for _, v := range []session.Viewer{bob, eve, max} {
			subscribers = append(subscribers, c.subscribe(v, query, nil))
		}
		c.viewer = ann
		id := c.get("createPost.post.id", draft, map[string]any{"v": map[string]any{"text": "my cat"}}).(string)
		c.Drain()
		require.Equal(t, "my cat", subscribers[0].next()["edge"].(map[string]any)["node"].(map[string]any)["text"])
		require.Equal(t, "my cat", subscribers[2].next()["edge"].(map[string]any)["node"].(map[string]any)["text"])
		c.viewer = max
		c.get("likePost.post.id", `mutation($id: ID!) { likePost(input: {postId: $id}) { post { id } } }`, map[string]any{"id": id})
		c.viewer = ann
		const edit = `mutation($v: UpdatePostInput!) { updatePost(input: $v) { post { id text data editedAt versions { nodes { id text data createdAt } } } } }`
		edited := c.get("updatePost.post", edit, map[string]any{"v": map[string]any{"postId": id, "text": "my dog", "data": map[string]any{"n": 1}}}).(map[string]any)
		require.NotNil(t, edited["editedAt"])
		versions := edited["versions"].(map[string]any)["nodes"].([]any)
		require.Len(t, versions, 1)
		require.Equal(t, "my cat", versions[0].(map[string]any)["text"])
		c.Drain()
		for i, want := range []string{"TimelinePostUpdated", "TimelinePostAdded", "TimelinePostUpdated"} {
			e := subscribers[i].next()
			edge := e["edge"].(map[string]any)
			require.Equal(t, want, e["__typename"])
			require.Equal(t, e["position"], edge["cursor"])
			require.Equal(t, map[string]any{"id": id, "text": "my dog", "data": map[string]any{"n": 1.0}, "editedAt": edited["editedAt"], "viewerHasLiked": i == 2}, edge["node"])
		}
		c.viewer = bob
		require.Equal(t, map[string]any{"editedAt": edited["editedAt"], "versions": nil}, c.get("post", `query($id: ID!) { post(id: $id) { editedAt versions(first: 1) { nodes { text } } } }`, map[string]any{"id": id}))
		c.viewer = ann
		c.refused("CONFLICT", edit, map[string]any{"v": map[string]any{"postId": id, "text": "too late", "ifUnchangedSince": versions[0].(map[string]any)["createdAt"]}})
		for _, bad := range []any{"", "yesterday", "2026-01-01T00:00:00"} {
			a := c.do(edit, map[string]any{"v": map[string]any{"postId": id, "text": "never", "ifUnchangedSince": bad}})
			require.Len(c.t, a.Errors, 1)
			require.Equal(c.t, map[string]any{"code": "BAD_USER_INPUT", "reason": "NOT_A_TIME", "field": "ifUnchangedSince"}, a.Errors[0].Extensions, bad)
			literal := fmt.Sprintf(`mutation { updatePost(input: {postId: %q, text: "never", ifUnchangedSince: %q}) { post { id } } }`, id, bad)
			a = c.do(literal, nil)
			require.Len(c.t, a.Errors, 1)
			require.Equal(c.t, map[string]any{"code": "BAD_USER_INPUT", "reason": "NOT_A_TIME", "field": "ifUnchangedSince"}, a.Errors[0].Extensions, bad)
		}
		c.refused("BAD_USER_INPUT", edit, map[string]any{"v": map[string]any{"postId": id, "text": "never", "ifUnchangedSince": 7}})
		small := strings.Replace(strings.ToLower(edited["editedAt"].(string)), "z", "+0000", 1)
		c.get("updatePost.post", edit, map[string]any{"v": map[string]any{"postId": id, "text": "my own dog", "ifUnchangedSince": small}})
		c.viewer = bob
		c.refused("FORBIDDEN", edit, map[string]any{"v": map[string]any{"postId": id, "text": "mine"}})
	})
}

// An event has the data of its post, which is read once for all subscribers.
func TestDataInEvents(t *testing.T) {
	each(t, func(c *client) {
		ann, bob, eve := c.User("ann"), c.User("bob"), c.User("eve")
		for _, v := range []session.Viewer{bob, eve} {
			c.Follow(v, ann)
			c.AwaitInbox(v)
		}
		const query = `subscription { e: timelineEvents { ... on TimelinePostAdded { edge { node { text data author { data } } } } } }`
		for _, to := range [][]session.Viewer{{bob}, {bob, eve}} {
			var subscribers []subscriber
			var ids []int64
			for _, v := range to {
				subscribers, ids = append(subscribers, c.subscribe(v, query, nil)), append(ids, v.ID)
			}
			c.viewer = ann
			raw := c.get("createPost.post.id", draft, map[string]any{"v": map[string]any{"text": "x", "data": map[string]any{"n": len(to)}}})
			require.NotEmpty(t, raw)
			post := c.s.DB.Post.Query().Order(postByNewest).FirstIDX(c.ctx)
			_, err := live.NewPublisher(c.s.Redis, c.s.Sharded).Publish(c.ctx, live.Event{Kind: live.Added, Post: post, Author: ann.ID}, ids)
			require.NoError(t, err)
			for _, s := range subscribers {
				node := s.next()["edge"].(map[string]any)["node"].(map[string]any)
				require.Equal(t, map[string]any{"text": "x", "data": map[string]any{"n": float64(len(to))}, "author": map[string]any{"data": map[string]any{}}}, node)
			}
		}
	})
}

package graph_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/feed/feedtest"
	"tideline/feed/home"
	"tideline/feed/session"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/storage"
	"tideline/storage/storagetest"
	"tideline/timeline"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// client calls an API on empty stores. Its viewer is the last user that it signed up or was given.
type client struct {
	*feedtest.World
	t      *testing.T
	ctx    context.Context
	s      *storage.Stores
	engine *exec.Engine
	viewer session.Viewer
}

func each(t *testing.T, test func(c *client)) {
	storagetest.Each(t, func(t *testing.T, s *storage.Stores) { test(newClient(t, s)) })
}

func newClient(t *testing.T, s *storage.Stores) *client {
	w := feedtest.New(t, s, feedtest.Options{Policy: home.Policy{Rankings: map[string]string{"unliked": "-likes"}}})
	engine, err := graph.New(backend(w), graph.Config{Introspection: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, err)
	w.Run(w.IDs.Run) // on a busy machine a test takes longer than a lease
	w.Run(w.Hub.Run)
	w.Run(w.Home.Run)
	return &client{World: w, t: t, ctx: w.Ctx, s: s, engine: engine}
}

func backend(w *feedtest.World) graph.Backend {
	return graph.Backend{Sessions: w.Sessions, Accounts: w.Accounts, Login: w.Login, Directory: w.Directory, Feed: w.Feed, Conversations: w.Conversations, Home: w.Home, Streams: w.Streams, Counts: w.Counts, Users: w.Backend.Users, Moderation: w.Moderation, Avatars: feedtest.Avatars}
}

// answer is a decoded response.
type answer struct {
	t      *testing.T
	Data   map[string]any
	Errors []struct {
		Message    string
		Path       []any
		Extensions map[string]any
	}
}

func (c *client) do(query string, variables map[string]any) answer {
	c.t.Helper()
	ctx := graph.WithViewer(c.ctx, c.viewer)
	a := answer{t: c.t}
	op, errs := c.engine.Prepare(ctx, exec.Request{Query: query, Variables: variables})
	response := exec.Response{Errors: errs}
	if errs == nil {
		response = c.engine.Execute(ctx, op)
	}
	raw, err := json.Marshal(response)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(raw, &a))
	return a
}

// get is do without errors. It returns the value at the dotted path in the data.
func (c *client) get(path, query string, variables map[string]any) any {
	c.t.Helper()
	a := c.do(query, variables)
	require.Empty(c.t, a.Errors)
	return a.at(path)
}

func (a answer) at(path string) any {
	a.t.Helper()
	var v any = a.Data
	for _, key := range strings.Split(path, ".") {
		object, ok := v.(map[string]any)
		require.True(a.t, ok, "%s of %v", path, a.Data)
		v = object[key]
	}
	return v
}

// refused is do with exactly one error, which must have the code.
func (c *client) refused(code, query string, variables map[string]any) {
	c.t.Helper()
	a := c.do(query, variables)
	require.Len(c.t, a.Errors, 1, "%v", a.Data)
	require.Equal(c.t, code, a.Errors[0].Extensions["code"], a.Errors[0].Message)
}

func (c *client) signUp(handle string) (id string, v session.Viewer) {
	c.t.Helper()
	a := c.do(`mutation($h: String!) { signUp(input: {handle: $h, password: "correct horse"}) { token expiresAt user { id handle } } }`,
		map[string]any{"h": handle})
	require.Empty(c.t, a.Errors)
	v, _, err := c.Sessions.Authenticate(c.ctx, a.at("signUp.token").(string))
	require.NoError(c.t, err)
	c.viewer = v
	return a.at("signUp.user.id").(string), v
}

const createPost = `mutation($text: String!, $visibility: Visibility) {
  createPost(input: {text: $text, visibility: $visibility}) { post { id text visibility createdAt author { handle } } edge { cursor score node { id } } }
}`

func TestEveryField(t *testing.T) {
	each(t, func(c *client) {
		annID, ann := c.signUp("ann")
		bobID, bob := c.signUp("bob")
		c.viewer = bob
		a := c.do(createPost, map[string]any{"text": "first"})
		require.Empty(c.t, a.Errors)
		post := a.at("createPost.post.id").(string)
		require.Equal(c.t, post, a.at("createPost.edge.node.id"))
		created, err := time.Parse("2006-01-02T15:04:05.000Z", a.at("createPost.post.createdAt").(string))
		require.NoError(c.t, err)
		require.WithinDuration(c.t, time.Now(), created, time.Minute)

		c.viewer = ann
		relation := `{ user { id handle followerCount } relationship { following followedBy mutual blocking muting requested } }`
		for _, step := range []struct {
			mutation, field string
			want            bool
		}{
			{"follow", "following", true}, {"mute", "muting", true}, {"unmute", "muting", false},
			{"block", "following", false}, {"block", "blocking", true}, {"unblock", "blocking", false}, {"follow", "following", true},
			{"unfollow", "following", false}, {"follow", "mutual", false},
		} {
			got := c.get(step.mutation+".relationship."+step.field,
				fmt.Sprintf(`mutation($id: ID!) { %s(input: {userId: $id}) %s }`, step.mutation, relation), map[string]any{"id": bobID})
			require.Equal(c.t, step.want, got, step)
		}
		a = c.do(`{ timeline(first: 5) { unreadCount pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
			edges { cursor score node { ...post } } nodes { id } } viewer { handle defaultVisibility } }
			fragment post on Post { id text likeCount viewerHasLiked author { handle relationship { following } } }`, nil)
		require.Empty(c.t, a.Errors)
		require.Equal(c.t, 1.0, a.at("timeline.unreadCount"))
		require.Equal(c.t, "PUBLIC", a.at("viewer.defaultVisibility"))
		edge := a.at("timeline.edges").([]any)[0].(map[string]any)
		require.Equal(c.t, a.at("timeline.pageInfo.startCursor"), edge["cursor"])
		require.Equal(c.t, post, edge["node"].(map[string]any)["id"])
		require.Equal(c.t, 0.0, c.get("markTimelineRead.unreadCount",
			`mutation($c: Cursor!) { markTimelineRead(input: {upTo: $c}) { unreadCount } }`, map[string]any{"c": edge["cursor"]}))

		byID := map[string]any{"id": post}
		require.Equal(c.t, 1.0, c.get("likePost.post.likeCount", `mutation($id: ID!) { likePost(input: {postId: $id}) { post { likeCount viewerHasLiked } } }`, byID))
		require.Equal(c.t, true, c.get("post.viewerHasLiked", `query($id: ID!) { post(id: $id) { viewerHasLiked } }`, byID))
		require.Equal(c.t, 0.0, c.get("unlikePost.post.likeCount", `mutation($id: ID!) { unlikePost(input: {postId: $id}) { post { likeCount } } }`, byID))
		require.Equal(c.t, "Post", c.get("node.__typename", `query($id: ID!) { node(id: $id) { __typename id } }`, byID))
		nodes := c.get("nodes", `query($ids: [ID!]!) { nodes(ids: $ids) { id ... on User { handle } ... on Post { text } } }`,
			map[string]any{"ids": []any{post, annID, bobID, globalID("Post:99"), post}})
		require.Equal(c.t, []any{
			map[string]any{"id": post, "text": "first"}, map[string]any{"id": annID, "handle": "ann"},
			map[string]any{"id": bobID, "handle": "bob"}, nil, map[string]any{"id": post, "text": "first"},
		}, nodes)
		require.Nil(c.t, c.get("user", `{ user(handle: "nobody") { id } }`, nil))
		require.Nil(c.t, c.get("user.defaultVisibility", `{ user(handle: "bob") { defaultVisibility } }`, nil))
		require.Nil(c.t, c.get("user.followRequests", `{ user(handle: "bob") { followRequests { nodes { id } } } }`, nil))
		users := c.get("users.nodes", `{ users(query: "bo") { nodes { handle posts { nodes { id } } followers { nodes { handle } } following { nodes { handle } } } } }`, nil)
		require.Equal(c.t, []any{map[string]any{
			"handle": "bob", "posts": map[string]any{"nodes": []any{map[string]any{"id": post}}},
			"followers": map[string]any{"nodes": []any{map[string]any{"handle": "ann"}}}, "following": map[string]any{"nodes": []any{}},
		}}, users)

		c.viewer = bob
		c.get("setPostVisibility.post.visibility", `mutation($id: ID!) { setPostVisibility(input: {postId: $id, visibility: PRIVATE}) { post { visibility } } }`, byID)
		c.viewer = ann
		require.Nil(c.t, c.get("post", `query($id: ID!) { post(id: $id) { id } }`, byID))
		require.Nil(c.t, c.get("node", `query($id: ID!) { node(id: $id) { id } }`, byID))
		c.refused("NOT_FOUND", `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, byID)
		c.viewer = bob
		require.Equal(c.t, post, c.get("deletePost.deletedPostId", `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, byID))
		require.Equal(c.t, "Bob", c.get("updateProfile.user.name", `mutation { updateProfile(input: {name: "Bob", bio: "b", approvesFollowers: true, defaultVisibility: MUTUALS}) { user { name bio approvesFollowers defaultVisibility } } }`, nil))
		require.Equal(c.t, true, c.get("logOut", `mutation { logOut }`, nil))
		require.Equal(c.t, "bob", c.get("logIn.user.handle", `mutation { logIn(input: {handle: "bob", password: "correct horse"}) { token user { handle } } }`, nil))
		c.viewer = session.Viewer{}
		require.Nil(c.t, c.get("viewer", `{ viewer { id } }`, nil))
		require.Nil(c.t, c.get("user.relationship", `{ user(handle: "bob") { relationship { following } } }`, nil))
	})
}

func TestErrorsCarryCodesAndNoInternals(t *testing.T) {
	each(t, func(c *client) {
		c.refused("UNAUTHENTICATED", `{ timeline { nodes { id } } }`, nil)
		annID, _ := c.signUp("ann")
		for query, code := range map[string]string{
			`mutation { signUp(input: {handle: "ann", password: "correct horse"}) { token } }`: "CONFLICT",
			`mutation { signUp(input: {handle: "a b", password: "correct horse"}) { token } }`: "BAD_USER_INPUT",
			`mutation { logIn(input: {handle: "ann", password: "wrong horse"}) { token } }`:    "UNAUTHENTICATED",
			`mutation { likePost(input: {postId: "x"}) { post { id } } }`:                      "BAD_USER_INPUT",
			`mutation { likePost(input: {postId: "` + annID + `"}) { post { id } } }`:          "BAD_USER_INPUT",
			`mutation { follow(input: {userId: "` + annID + `"}) { user { id } } }`:            "BAD_USER_INPUT",
			`{ timeline(first: 1000) { nodes { id } } }`:                                       "BAD_USER_INPUT",
			`{ timeline(after: "bm9wZQ") { nodes { id } } }`:                                   "BAD_USER_INPUT",
			`mutation { createPost(input: {text: "a\u0000b"}) { post { id } } }`:               "BAD_USER_INPUT",
		} {
			c.refused(code, query, nil)
		}
		require.NoError(c.t, c.s.SQL.Close())
		a := c.do(`{ timeline { nodes { id } } }`, nil)
		require.Len(c.t, a.Errors, 1)
		require.Equal(c.t, "INTERNAL", a.Errors[0].Extensions["code"])
		require.NotContains(c.t, strings.ToLower(a.Errors[0].Message), "sql")
	})
}

// The number of a user's posts does not disclose posts that are hidden from the viewer.
func TestPostCountIsOfWhatTheViewerMaySee(t *testing.T) {
	each(t, func(c *client) {
		id, author := c.signUp("author")
		viewers := map[string]session.Viewer{"author": author, "nobody": {}}
		for _, name := range []string{"stranger", "follower", "followed", "mutual", "blocked", "blocking"} {
			_, viewers[name] = c.signUp(name)
		}
		for _, pair := range [][2]string{{"follower", "author"}, {"author", "followed"}, {"mutual", "author"}, {"author", "mutual"}} {
			_, err := c.Feed.Follow(c.ctx, viewers[pair[0]], viewers[pair[1]].ID)
			require.NoError(c.t, err)
		}
		for _, pair := range [][2]string{{"author", "blocked"}, {"blocking", "author"}} {
			_, err := c.Feed.Block(c.ctx, viewers[pair[0]], viewers[pair[1]].ID)
			require.NoError(c.t, err)
		}
		see := func(all, public, followers, mutuals float64) {
			c.t.Helper()
			for name, want := range map[string]float64{
				"author": all, "nobody": public, "stranger": public, "follower": public + followers, "followed": public,
				"mutual": public + followers + mutuals, "blocked": 0, "blocking": 0,
			} {
				c.viewer = viewers[name]
				require.Equal(c.t, want, c.get("user.postCount", `{ user(handle: "author") { postCount } }`, nil), name)
				require.Equal(c.t, want, c.get("node.postCount", `query($id: ID!) { node(id: $id) { ... on User { postCount } } }`,
					map[string]any{"id": id}), name)
			}
			c.viewer = author
		}
		see(0, 0, 0, 0)
		var posts []any
		for _, visibility := range []string{"PUBLIC", "FOLLOWERS", "MUTUALS", "PRIVATE", "PRIVATE"} {
			posts = append(posts, c.get("createPost.post.id", createPost, map[string]any{"text": "x", "visibility": visibility}))
		}
		see(5, 1, 1, 1)
		change := func(i int, to string) {
			c.get("setPostVisibility.post.id", `mutation($id: ID!, $to: Visibility!) { setPostVisibility(input: {postId: $id, visibility: $to}) { post { id } } }`,
				map[string]any{"id": posts[i], "to": to})
		}
		change(3, "MUTUALS")
		see(5, 1, 1, 2)
		change(3, "MUTUALS") // a change to the same visibility is not counted again
		see(5, 1, 1, 2)
		change(0, "FOLLOWERS")
		see(5, 0, 2, 2)
		change(2, "PRIVATE")
		see(5, 0, 2, 1)
		change(2, "PUBLIC")
		see(5, 1, 2, 1)
		for i, counts := range [][4]float64{{4, 1, 1, 1}, {3, 1, 0, 1}, {2, 0, 0, 1}, {1, 0, 0, 0}, {0, 0, 0, 0}} {
			c.get("deletePost.deletedPostId", `mutation($id: ID!) { deletePost(input: {postId: $id}) { deletedPostId } }`, map[string]any{"id": posts[i]})
			see(counts[0], counts[1], counts[2], counts[3])
		}
	})
}

// The post counts of a page of users cost one more query, for the viewer's
// relations, on which the counts depend.
func TestPostCountsOfAPageCostOneQuery(t *testing.T) {
	each(t, func(c *client) {
		for i := range 5 {
			c.signUp(fmt.Sprint("user", i))
		}
		viewer := c.viewer
		page := func(fields string) int {
			before := storagetest.Queries(c.s)
			require.Len(c.t, c.get("users.nodes", `{ users(query: "user") { nodes { `+fields+` } } }`, nil), 5)
			return storagetest.Queries(c.s) - before
		}
		plain := page("handle")
		require.Equal(c.t, plain+1, page("handle postCount"))
		require.Equal(c.t, plain+1, page("handle postCount relationship { following }"))
		c.viewer = session.Viewer{}
		require.Equal(c.t, plain, page("handle postCount"), "nobody stands in a relation to anybody")
		c.viewer = viewer
	})
}

// A page costs the same number of queries for any number of posts and authors.
func TestPageOfPostsCostsAConstantNumberOfQueries(t *testing.T) {
	each(t, func(c *client) {
		_, reader := c.signUp("reader")
		cost := map[int]int{}
		for _, authors := range []int{1, 20} {
			for i := range authors {
				handle := fmt.Sprintf("author_%d_%d", authors, i)
				c.viewer = session.Viewer{}
				id, author := c.signUp(handle)
				c.viewer = author
				for range 40 / authors {
					c.get("createPost.post.id", createPost, map[string]any{"text": handle})
				}
				c.viewer = reader
				c.get("follow.user.id", `mutation($id: ID!) { follow(input: {userId: $id}) { user { id } } }`, map[string]any{"id": id})
			}
			page := func() int {
				before := storagetest.Queries(c.s)
				nodes := c.get("timeline.nodes", `{ timeline(first: 20) { pageInfo { endCursor } nodes { id text viewerHasLiked author { handle relationship { following } } } } }`, nil).([]any)
				require.Len(c.t, nodes, 20)
				return storagetest.Queries(c.s) - before
			}
			// Until the inbox is built, SQL serves the page with another number of queries.
			require.Eventually(c.t, func() bool {
				page()
				in, err := c.Audit.Inspect(c.ctx, reader.ID)
				return err == nil && in.State == timeline.Ready
			}, 30*time.Second, 20*time.Millisecond)
			cost[authors] = page()
			for range 5 { // periodic queries do not count
				cost[authors] = min(cost[authors], page())
			}
		}
		require.Equal(c.t, cost[1], cost[20])
		require.LessOrEqual(c.t, cost[20], 6)
	})
}

func globalID(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// The answer to @defer is incremental, which no transport here supports.
func TestDeferIsNotOffered(t *testing.T) {
	each(t, func(c *client) {
		c.refused("GRAPHQL_VALIDATION_FAILED", `{ ... @defer { viewer { id } } }`, nil)
		var names []any
		for _, d := range c.get("__schema.directives", `{ __schema { directives { name } } }`, nil).([]any) {
			names = append(names, d.(map[string]any)["name"])
		}
		require.Subset(c.t, names, []any{"skip", "include"})
		require.NotContains(c.t, names, "defer")
	})
}

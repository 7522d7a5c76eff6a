package graph_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tideline/ent/schema"
	"tideline/feed"
	"tideline/feed/account"
	"tideline/feed/session"
	"tideline/feed/visibility"
	"tideline/graph"
	"tideline/graph/exec"
	"tideline/storage/storagetest"
)

// For every selection of a page, of all posts and authors, the compiled query returns exactly the bytes that
// gqlgen returns. Other documents are left to gqlgen.
func TestCompiledPageIsGqlgens(t *testing.T) {
	each(t, func(c *client) {
		t := c.t
		_, bob := c.signUp("bob")
		_, ann := c.signUp("ann")
		_, err := c.Feed.Follow(c.ctx, ann, bob.ID)
		require.NoError(t, err)
		for i, visibility := range []schema.Visibility{schema.Public, schema.Followers, schema.Mutuals} {
			p, err := c.Feed.CreatePost(c.ctx, bob, feed.Draft{Text: fmt.Sprintf("%d \"quoted\"\n\t\\ \u2028 <b> 你好", i), Visibility: &visibility, Data: new(fmt.Sprintf(`{"n":%d,"s":"<b>\\u2028"}`, i))})
			require.NoError(t, err)
			if visibility == schema.Public {
				_, err = c.Feed.LikePost(c.ctx, ann, p.ID)
				require.NoError(t, err)
			}
		}
		_, err = c.Accounts.UpdateProfile(c.ctx, bob, account.Profile{AvatarURL: new("https://img.example.org/b"), Links: []string{"https://b.example/?a&b", "http://c.example"}, Data: new(`{"a":[1]}`)})
		require.NoError(t, err)
		mine, err := c.Feed.CreatePost(c.ctx, ann, feed.Draft{Text: "mine #Tide #潮水"})
		require.NoError(t, err)
		_, err = c.Feed.UpdatePost(c.ctx, ann, mine.ID, feed.Edit{Text: new("mine still #Tide #潮水 #tide")})
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			root := fmt.Sprintf("timeline(first: %d, order: %s)",
				rapid.IntRange(1, 5).Draw(t, "first"), rapid.SampledFrom([]string{"LATEST", "RANKED"}).Draw(t, "order"))
			alias := rapid.SampledFrom([]string{"", "page: "}).Draw(t, "alias")
			selected := selection(t, "TimelineConnection")
			fast, compiled := c.data(ann, "{ "+alias+root+selected+" }")
			slow, uncompiled := c.data(ann, "{ "+alias+root+" @include(if: true) "+selected+" }")
			require.True(t, compiled)
			require.False(t, uncompiled)
			require.Equal(t, slow, fast)
		})
		for name, query := range map[string]string{
			"another field":           `{ timeline { nodes { delivery { done } } } }`,
			"the viewer's own":        `{ timeline { nodes { author { relationship { following } } } } }`,
			"the viewer's count":      `{ timeline { nodes { author { postCount } } } }`,
			"two fields":              `{ timeline { nodes { id } } viewer { id } }`,
			"a directive":             `{ timeline { nodes { id text @skip(if: false) } } }`,
			"a directive in fragment": `{ timeline { nodes { ...P } } } fragment P on Post @include(if: true) { id }`,
			"a mutation":              `mutation { logOut }`,
		} {
			op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: query})
			if len(errs) == 0 {
				require.False(t, op.Compiled(), name)
			}
		}
		c.viewer = session.Viewer{}
		c.refused("UNAUTHENTICATED", `{ timeline { nodes { id } } }`, nil)
		c.viewer = ann
		c.refused("BAD_USER_INPUT", `{ timeline(after: "forged") { nodes { id } } }`, nil)
	})
}

// A document that selects the unread count several times causes one count and pays for one.
func TestUnreadCountIsCountedOnce(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		c.viewer = ann
		ask := func(fields string) (queries, cost int) {
			query := `{ timeline(first: 20) { ` + fields + ` } viewer { id } }`
			op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: query})
			require.Empty(t, errs)
			queries = 1 << 20
			for range 5 { // periodic queries do not count
				asked := storagetest.CountQueries(c.s)
				require.EqualValues(t, 0, c.get("timeline.unreadCount", query, nil))
				queries = min(queries, asked())
			}
			return queries, op.Cost()
		}
		c.AwaitInbox(ann)
		once, price := ask("unreadCount")
		often, more := ask("unreadCount a: unreadCount b: unreadCount ... { c: unreadCount }")
		require.Equal(t, once, often)
		require.Equal(t, 100+50+1+20+10+1+1, price)
		require.Equal(t, price+3*20, more)
	})
}

// data returns the answer to a query without the parts of cursors that depend on the time or
// on whether the inbox is built.
func (c *client) data(v session.Viewer, query string) (data string, compiled bool) {
	c.t.Helper()
	ctx := graph.WithViewer(c.ctx, v)
	op, errs := c.engine.Prepare(ctx, exec.Request{Query: query})
	require.Empty(c.t, errs, query)
	response := c.engine.Execute(ctx, op)
	require.Empty(c.t, response.Errors, query)
	return cursors.ReplaceAllString(string(response.Data), `"$1":"$2"`), op.Compiled()
}

var cursors = regexp.MustCompile(`"(\w*[cC]ursor|\w*position)":"\w{2}(\w{2})[^"]+"`)

// selection draws a selection set that can be compiled.
func selection(t *rapid.T, kind string) string {
	objects := map[string]string{"pageInfo": "PageInfo", "edges": "TimelineEdge", "nodes": "Post", "node": "Post", "author": "User"}
	leaves := map[string][]string{
		"TimelineConnection": {"unreadCount", "position", "pageInfo", "edges", "nodes"},
		"PageInfo":           {"hasNextPage", "hasPreviousPage", "startCursor", "endCursor"},
		"TimelineEdge":       {"cursor", "score", "node"},
		"Post":               {"id", "text", "visibility", "hiddenByModerators", "tags", "createdAt", "editedAt", "likeCount", "data", "viewerHasLiked", "author"},
		"User":               {"id", "handle", "name", "bio", "avatarUrl", "links", "data", "createdAt", "approvesFollowers", "followerCount", "followingCount"},
	}
	var b strings.Builder
	b.WriteString(" {")
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(append(leaves[kind], "__typename")), 1, 6).Draw(t, kind) {
		field := name
		if object := objects[name]; object != "" {
			field += selection(t, object)
		}
		switch rapid.IntRange(0, 4).Draw(t, "form") {
		case 0:
			field = "a_" + name + ": " + field
		case 1:
			field = "... { " + field + " }"
		case 2:
			field = "... on " + kind + " { " + field + " }"
		}
		b.WriteString(" " + field)
	}
	return b.String() + " }"
}

// A field costs what it reads, each time it is selected, even if it returns little.
func TestPricesAreOfWhatIsRead(t *testing.T) {
	t.Parallel()
	s := storagetest.Embedded(t)
	c := newClient(t, s)
	cost := func(query string, variables map[string]any) int {
		op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: query, Variables: variables})
		require.Empty(t, errs, query)
		return op.Cost()
	}
	const page = 50
	ranked, looked := page+c.Home.MostRanked(), page+2*visibility.MostLooked
	for field, want := range map[string]int{
		`timeline(first: 1) { nodes { id } }`:                         page,
		`timeline(first: 1, order: RANKED) { nodes { id } }`:          ranked,
		`timeline(last: 1, order: RANKED) { nodes { id } }`:           ranked,
		`users(first: 1) { nodes { id } }`:                            page,
		`users(first: 1, query: "") { nodes { id } }`:                 page,
		`users(first: 1, query: "a") { nodes { id } }`:                page + 500,
		`taggedPosts(tag: "a", first: 1) { nodes { id } }`:            looked,
		`user(handle: "a") { likedPosts(first: 1) { nodes { id } } }`: 1 + 10 + looked,
		`user(handle: "a") { posts(first: 1) { nodes { id } } }`:      1 + 10 + page,
	} {
		require.Equal(t, 1+want+2, cost("{ "+field+" }", nil), field)
		require.Equal(t, 3*(1+want+2), cost("{ a: "+field+" b: "+field+" ...F } fragment F on Query { c: "+field+" }", nil), field)
	}
	require.Equal(t, 1+1000+1, cost(`{ suggestedUsers(first: 1) { id } }`, nil))
	require.Equal(t, 1+10+1, cost(`{ post(id: "a") { id } }`, nil))
	require.Equal(t, 1+10+2*1, cost(`{ nodes(ids: ["a", "b"]) { id } }`, nil))
	query := `query ($o: TimelineOrder, $q: String) { timeline(first: 1, order: $o) { nodes { id } } users(first: 1, query: $q) { nodes { id } } }`
	require.Equal(t, 2*(1+page+2), cost(query, nil))
	require.Equal(t, 1+ranked+2+1+page+500+2, cost(query, map[string]any{"o": "RANKED", "q": "a"}))

	require.Equal(t, 1+10+2+100, cost(`{ viewer { a: unreadCount b: unreadCount } }`, nil), "a query counts once")
	mark := `markTimelineRead(input: {upTo: "c"}) { unreadCount }`
	require.Equal(t, 2*(1+100+1), cost(`mutation { a: `+mark+` b: `+mark+` }`, nil))
	mark = `markTimelineRead(input: {upTo: "c"}) { viewer { a: unreadCount b: unreadCount } }`
	require.Equal(t, 2*(1+100+1+2*(1+100)), cost(`mutation { a: `+mark+` b: `+mark+` }`, nil), "a mutation counts each time")

	var aliases strings.Builder
	for i := range 30 {
		fmt.Fprintf(&aliases, " a%d: timeline(first: 1, order: RANKED) { nodes { id } }", i)
	}
	_, errs := c.engine.Prepare(c.ctx, exec.Request{Query: "{" + aliases.String() + "}"})
	require.Len(t, errs, 1)
	require.Equal(t, "QUERY_TOO_COMPLEX", errs[0].Extensions["code"])
}

package graph_test

import (
	"fmt"
	"os"
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
		talk(c, ann, bob, mine.ID)
		rapid.Check(t, func(t *rapid.T) {
			root := fmt.Sprintf("timeline(first: %d, order: %s)",
				rapid.IntRange(1, 12).Draw(t, "first"), rapid.SampledFrom([]string{"LATEST", "RANKED"}).Draw(t, "order"))
			alias := rapid.SampledFrom([]string{"", "page: "}).Draw(t, "alias")
			selected := selection(t, "TimelineConnection", 2)
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

// A page that cannot be read completely has the errors and nulls that gqlgen gives it.
func TestErrorsOfACompiledPageAreGqlgens(t *testing.T) {
	each(t, func(c *client) {
		_, bob := c.signUp("bob")
		_, ann := c.signUp("ann")
		c.Follow(ann, bob)
		_, err := c.Feed.CreatePost(c.ctx, bob, feed.Draft{Text: "hi @ann"})
		require.NoError(c.t, err)
		c.viewer = ann
		const selected = `timeline { nodes { id text mentions { user { id } } } }`
		require.NotEmpty(c.t, c.get("timeline.nodes", "{ "+selected+" }", nil))
		_, err = c.s.SQL.ExecContext(c.ctx, "ALTER TABLE post_mentions RENAME TO unreadable")
		require.NoError(c.t, err)
		fast, slow := c.do("{ "+selected+" }", nil), c.do("{ "+selected+" x: __typename @skip(if: true) }", nil)
		require.Len(c.t, fast.Errors, 1)
		require.Equal(c.t, []any{"timeline", "nodes", 0.0, "mentions"}, fast.Errors[0].Path)
		require.Equal(c.t, slow, fast)
	})
}

// The pages that the app and the TypeScript kit ask for are compiled.
func TestPagesOfTheAppAndTheKitAreCompiled(t *testing.T) {
	t.Parallel()
	c := newClient(t, storagetest.Embedded(t))
	for name, query := range clientPages(t) {
		op, errs := c.engine.Prepare(c.ctx, exec.Request{Query: query, Variables: map[string]any{"order": "LATEST"}})
		require.Empty(t, errs, query)
		require.True(t, op.Compiled(), name)
	}
}

// The number of SQL statements of a page depends on what it selects, and not on how many replies and reposts
// it has.
func TestStatementsOfAPageDoNotGrow(t *testing.T) {
	each(t, func(c *client) {
		reader := homePage(c.World, "m", true)
		c.viewer = reader
		pages := clientPages(c.t)
		pages["bare"] = `query($first: Int) { timeline(first: $first) { edges { node { id author { handle } repostOf { id author { handle } } } } } }`
		for name, query := range pages {
			statements := func(first int) int {
				least := 1 << 20
				for range 5 { // periodic statements do not count
					asked := storagetest.CountQueries(c.s)
					require.Len(c.t, c.get("timeline.edges", query, map[string]any{"first": first, "order": "LATEST"}), first)
					least = min(least, asked())
				}
				return least
			}
			require.Equal(c.t, statements(3), statements(20), name)
			if name == "bare" {
				require.Equal(c.t, 1, statements(20), "the posts with their roots and originals, which were read before")
			}
		}
	})
}

// clientPages returns the documents with which the app and the TypeScript kit read pages.
func clientPages(t *testing.T) map[string]string {
	kit := source(t, "../clients/typescript/src/server.ts")
	texts := map[string]string{ // what the kit writes into its documents
		"postFields":    kit("const postFields = '(.+)'"),
		"defaultFields": kit("const defaultFields = `(.+)`"),
		"entry":         kit("const entry = `(.+)`"),
	}
	document := func(fields, fragments string) string {
		texts["fields"], texts["fragments"] = fields, fragments
		text := kit("(?s)page: `(.+?)`")
		for strings.Contains(text, "${") {
			text = regexp.MustCompile(`\$\{(\w+)\}`).ReplaceAllStringFunc(text, func(hole string) string { return texts[hole[2:len(hole)-1]] })
		}
		return text
	}
	app := source(t, "../web/app/documents.ts")
	require.Equal(t, "...Post", app("timelineFields = { fields: '(.+?)'"))
	fragments := app("(?s)`\\s+(fragment Post on Post .+?)`") + app("(?s)`\\s+(fragment Original on Post .+?)`")
	return map[string]string{"app": document("...Post", fragments), "kit": document("${defaultFields}", "")}
}

// source returns a function that returns what the group of an expression matches in a file.
func source(t *testing.T, file string) func(expression string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return func(expression string) string {
		t.Helper()
		found := regexp.MustCompile(expression).FindSubmatch(text)
		require.Len(t, found, 2, expression)
		return string(found[1])
	}
}

// talk makes bob reply to, repost and quote posts. Ann follows bob and sees his posts, but not all that they
// name: one conversation is for bob's friends, one quote is withdrawn, and one quoted post is deleted.
func talk(c *client, ann, bob session.Viewer, mine int64) {
	_, cat := c.signUp("cat")
	post := func(by session.Viewer, d feed.Draft) int64 {
		p, err := c.Feed.CreatePost(c.ctx, by, d)
		require.NoError(c.t, err)
		return p.ID
	}
	asked := post(cat, feed.Draft{Text: "who? @ann @bob", ReplyAudience: schema.OnlyMentioned, QuoteAudience: schema.OnlyAuthors, Data: new(`{"cat":1}`)})
	reply := post(bob, feed.Draft{Text: "I, @cat", ReplyTo: asked})
	_, err := c.Accounts.UpdateProfile(c.ctx, ann, account.Profile{HomeReplies: new(schema.AllReplies)})
	require.NoError(c.t, err)
	gone, friends := post(bob, feed.Draft{Text: "gone"}), post(cat, feed.Draft{Text: "friends"})
	post(bob, feed.Draft{Text: "a deleted post", QuoteOf: gone})
	require.NoError(c.t, c.Feed.DeletePost(c.ctx, bob, gone))
	post(bob, feed.Draft{Text: "for friends", QuoteOf: friends})
	_, err = c.Feed.SetVisibility(c.ctx, cat, friends, schema.Mutuals)
	require.NoError(c.t, err)
	withdrawn := post(bob, feed.Draft{Text: "withdrawn", QuoteOf: mine})
	_, err = c.Feed.WithdrawQuote(c.ctx, ann, withdrawn)
	require.NoError(c.t, err)
	post(bob, feed.Draft{Text: "shown, @ann", QuoteOf: mine})
	for _, original := range []int64{mine, asked, reply} {
		_, err = c.Feed.Repost(c.ctx, bob, original, nil)
		require.NoError(c.t, err)
	}
	_, err = c.Feed.Repost(c.ctx, ann, asked, nil)
	require.NoError(c.t, err)
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

// selection draws a selection set that can be compiled. links is how many posts may lead to one another.
func selection(t *rapid.T, kind string, links int) string {
	objects := map[string]string{
		"pageInfo": "PageInfo", "edges": "TimelineEdge", "nodes": "Post", "node": "Post", "author": "User", "reason": "EntryReason", "by": "User",
		"replyTo": "Post", "root": "Post", "repostOf": "Post", "viewerRepost": "Post", "quote": "Quote", "post": "Post", "mentions": "Mention", "user": "User",
	}
	leaves := map[string][]string{
		"TimelineConnection": {"unreadCount", "position", "pageInfo", "edges", "nodes"},
		"PageInfo":           {"hasNextPage", "hasPreviousPage", "startCursor", "endCursor"},
		"TimelineEdge":       {"cursor", "score", "node", "reason"},
		"EntryReason":        {"kind", "by", "at"},
		"Post": {"id", "text", "visibility", "hiddenByModerators", "tags", "createdAt", "editedAt", "likeCount", "data", "viewerHasLiked", "author",
			"replyCount", "repostCount", "quoteCount", "replyAudience", "quoteAudience", "viewerCanReply", "viewerCanQuote", "mentions"},
		"Quote":   {"state", "post"},
		"Mention": {"user", "start", "end"},
		"User":    {"id", "handle", "name", "bio", "avatarUrl", "links", "data", "createdAt", "approvesFollowers", "followerCount", "followingCount"},
	}
	if kind == "Post" && links > 0 {
		links--
		leaves[kind] = append(leaves[kind], "replyTo", "root", "repostOf", "viewerRepost", "quote", "repostOf")
	}
	var b strings.Builder
	b.WriteString(" {")
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(append(leaves[kind], "__typename")), 1, 6).Draw(t, kind) {
		field := name
		if object := objects[name]; object != "" {
			field += selection(t, object, links)
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
		`timeline(first: 1) { nodes { id } }`:                                 page,
		`timeline(first: 1, order: RANKED) { nodes { id } }`:                  ranked,
		`timeline(last: 1, order: RANKED) { nodes { id } }`:                   ranked,
		`users(first: 1) { nodes { id } }`:                                    page,
		`users(first: 1, query: "") { nodes { id } }`:                         page,
		`users(first: 1, query: "a") { nodes { id } }`:                        page + 500,
		`taggedPosts(tag: "a", first: 1) { nodes { id } }`:                    looked,
		`publicPosts(first: 1) { nodes { id } }`:                              looked,
		`user(handle: "a") { likedPosts(first: 1) { nodes { id } } }`:         1 + 10 + looked,
		`user(handle: "a") { mutedConversations(first: 1) { nodes { id } } }`: 1 + 10 + looked,
		`user(handle: "a") { posts(first: 1) { nodes { id } } }`:              1 + 10 + page,
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

package graph_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The error for a wrong argument names the argument and discloses nothing about the server's internals.
func TestBadArguments(t *testing.T) {
	each(t, func(c *client) {
		_, bob := c.signUp("bob")
		annID, ann := c.signUp("ann")
		const posting = `mutation { createPost(input: {text: "t"}) { post { id } edge { cursor } } }`
		a := c.do(posting, nil)
		require.Empty(c.t, a.Errors)
		postID, mine := a.at("createPost.post.id").(string), a.at("createPost.edge.cursor").(string)
		c.viewer = bob
		bobs := c.get("createPost.edge.cursor", posting, nil).(string)
		c.viewer = ann
		ranked := c.get("timeline.pageInfo.endCursor", `{ timeline(order: RANKED) { pageInfo { endCursor } } }`, nil).(string)
		ofUsers := c.get("users.pageInfo.endCursor", `{ users { pageInfo { endCursor } } }`, nil).(string)
		raw, err := base64.RawURLEncoding.DecodeString(mine)
		require.NoError(c.t, err)
		raw[5]++
		forged := base64.RawURLEncoding.EncodeToString(raw)
		huge := strings.Repeat("x", 1<<20)

		const (
			timeline = `query($v: Int, $w: Int) { timeline(first: $v, last: $w) { nodes { id } } }`
			after    = `query($v: Cursor) { timeline(after: $v) { nodes { id } } }`
			before   = `query($v: Cursor) { timeline(before: $v) { nodes { id } } }`
			mark     = `mutation($v: Cursor!) { markTimelineRead(input: {upTo: $v}) { unreadCount } }`
			post     = `query($v: ID!) { post(id: $v) { id } }`
			node     = `query($v: ID!) { node(id: $v) { id } }`
			nodes    = `query($v: [ID!]!) { nodes(ids: $v) { id } }`
			follow   = `mutation($v: ID!) { follow(input: {userId: $v}) { user { id } } }`
			like     = `mutation($v: ID!) { likePost(input: {postId: $v}) { post { id } } }`
			create   = `mutation($v: String!) { createPost(input: {text: $v}) { post { id } } }`
			profile  = `mutation($v: UpdateProfileInput!) { updateProfile(input: $v) { user { id } } }`
			signUp   = `mutation($v: SignUpInput!) { signUp(input: $v) { token } }`
			users    = `query($v: String) { users(query: $v) { nodes { id } } }`
			user     = `query($v: String!) { user(handle: $v) { id } }`
		)
		one := func(v any) map[string]any { return map[string]any{"v": v} }
		for name, tc := range map[string]struct {
			query     string
			variables map[string]any
		}{
			"first zero":                   {timeline, one(0)},
			"first negative":               {timeline, one(-1)},
			"first the least":              {timeline, one(-1 << 31)},
			"first above the most":         {timeline, one(101)},
			"first too large an Int":       {timeline, one(1 << 31)},
			"first enormous":               {timeline, one(1e300)},
			"first a fraction":             {timeline, one(1.5)},
			"first a text":                 {timeline, one("10")},
			"first a list":                 {timeline, one([]any{1, 2})},
			"last zero":                    {timeline, map[string]any{"w": 0}},
			"last negative":                {timeline, map[string]any{"w": -5}},
			"last above the most":          {timeline, map[string]any{"w": 101}},
			"both":                         {timeline, map[string]any{"v": 1, "w": 1}},
			"first of posts":               {`{ user(handle: "ann") { posts(first: 0) { nodes { id } } } }`, nil},
			"first of followers":           {`{ user(handle: "ann") { followers(first: -1) { nodes { id } } } }`, nil},
			"first of following":           {`{ user(handle: "ann") { following(first: 101) { nodes { id } } } }`, nil},
			"first of requests":            {`{ viewer { followRequests(first: 0) { nodes { id } } } }`, nil},
			"first of sent requests":       {`{ viewer { sentRequests(first: 0) { nodes { id } } } }`, nil},
			"first of blocked":             {`{ viewer { blocked(first: 101) { nodes { id } } } }`, nil},
			"first of muted":               {`{ viewer { muted(first: -1) { nodes { id } } } }`, nil},
			"first of liked posts":         {`{ viewer { likedPosts(first: 0) { nodes { id } } } }`, nil},
			"first of muted conversations": {`{ viewer { mutedConversations(first: 0) { nodes { id } } } }`, nil},
			"cursor of a like":             {`query($v: Cursor) { viewer { likedPosts(after: $v) { nodes { id } } } }`, one(mine)},
			"first of a tag":               {`{ taggedPosts(tag: "tide", first: 0) { nodes { id } } }`, nil},
			"no tag":                       {`query($v: String!) { taggedPosts(tag: $v) { nodes { id } } }`, one("two words")},
			"a huge tag":                   {`query($v: String!) { taggedPosts(tag: $v) { nodes { id } } }`, one(huge)},
			"cursor of no tag":             {`query($v: Cursor) { taggedPosts(tag: "tide", after: $v) { nodes { id } } }`, one(mine)},
			"first of public posts":        {`{ publicPosts(first: 0) { nodes { id } } }`, nil},
			"cursor of the private":        {`query($v: Cursor) { publicPosts(after: $v) { nodes { id } } }`, one(mine)},
			"first of users":               {`{ users(first: 0) { nodes { id } } }`, nil},
			"first ranked":                 {`{ timeline(order: RANKED, first: 0) { nodes { id } } }`, nil},
			"ranking unknown":              {`{ timeline(order: RANKED, ranking: "far") { nodes { id } } }`, nil},
			"ranking of the newest":        {`{ timeline(ranking: "hot") { nodes { id } } }`, nil},
			"ranking empty":                {`{ timeline(order: RANKED, ranking: "\u0000") { nodes { id } } }`, nil},
			"cursor empty":                 {after, one("")},
			"cursor of nothing":            {after, one("x")},
			"cursor forged":                {after, one(forged)},
			"cursor cut":                   {after, one(mine[:len(mine)-1])},
			"cursor padded":                {after, one(mine + "=")},
			"cursor of another":            {after, one(bobs)},
			"cursor of another order":      {after, one(ranked)},
			"cursor of another list":       {before, one(ofUsers)},
			"cursor with a NUL":            {after, one("\x00")},
			"cursor enormous":              {after, one(huge)},
			"cursor a number":              {after, one(5)},
			"mark of another":              {mark, one(bobs)},
			"mark forged":                  {mark, one(forged)},
			"mark enormous":                {mark, one(huge)},
			"like by no id":                {like, one("x")},
			"like by another spelling":     {like, one(globalID("Post:01"))},
			"id an object":                 {node, one(map[string]any{"a": 1})},
			"a null among the ids":         {nodes, one([]any{annID, nil})},
			"too many ids":                 {nodes, one(append(make([]any, 0), repeat(annID, 101)...))},
			"follow a post":                {follow, one(postID)},
			"follow oneself":               {follow, one(annID)},
			"like a user":                  {like, one(annID)},
			"text empty":                   {create, one("")},
			"text blank":                   {create, one(" \n\t ")},
			"text with a NUL":              {create, one("a\x00b")},
			"text with an escape":          {create, one("a\x1bb")},
			"text too long":                {create, one(strings.Repeat("x", 5001))},
			"text enormous":                {create, one(huge)},
			"text not Unicode":             {create, one("a\xffb")},
			"text a number":                {create, one(1)},
			"text missing":                 {create, nil},
			"text null":                    {create, one(nil)},
			"name with a NUL":              {profile, one(map[string]any{"name": "a\x00"})},
			"name of two lines":            {profile, one(map[string]any{"name": "a\nb"})},
			"name empty":                   {profile, one(map[string]any{"name": ""})},
			"name enormous":                {profile, one(map[string]any{"name": huge})},
			"bio with a NUL":               {profile, one(map[string]any{"bio": "\x00"})},
			"bio enormous":                 {profile, one(map[string]any{"bio": huge})},
			"visibility unknown":           {profile, one(map[string]any{"defaultVisibility": "ALL"})},
			"field unknown":                {profile, one(map[string]any{"admin": true})},
			"key enormous":                 {`mutation($v: String) { createPost(input: {text: "x", idempotencyKey: $v}) { post { id } } }`, one(huge)},
			"key with a NUL":               {`mutation($v: String) { createPost(input: {text: "x", idempotencyKey: $v}) { post { id } } }`, one("a\x00")},
			"handle enormous":              {signUp, one(map[string]any{"handle": huge, "password": "correct horse"})},
			"handle with a NUL":            {signUp, one(map[string]any{"handle": "a\x00", "password": "correct horse"})},
			"password enormous":            {signUp, one(map[string]any{"handle": "eve", "password": huge})},
			"password short":               {signUp, one(map[string]any{"handle": "eve", "password": "short"})},
			"password missing":             {signUp, one(map[string]any{"handle": "eve"})},
			"search enormous":              {users, one(huge)},
			"search with a NUL":            {users, one("a\x00")},
			"order unknown":                {`query($v: TimelineOrder) { timeline(order: $v) { nodes { id } } }`, one("BEST")},
		} {
			a := c.do(tc.query, tc.variables)
			require.Len(c.t, a.Errors, 1, name)
			require.Equal(c.t, "BAD_USER_INPUT", a.Errors[0].Extensions["code"], "%s: %s", name, a.Errors[0].Message)
			require.NotEmpty(c.t, a.Errors[0].Message, name)
			require.Less(c.t, len(a.Errors[0].Message), 200, name)
		}
		// An omitted argument has its default.
		require.Len(c.t, c.get("timeline.nodes", timeline, nil), 1)
		require.Len(c.t, c.get("timeline.nodes", timeline, map[string]any{"v": nil, "w": nil}), 1)
	})
}

// An id or handle that no server made is looked up as a missing object. A client with an id of another
// server, or a mistyped address, gets null.
func TestMalformedLookUps(t *testing.T) {
	each(t, func(c *client) {
		annID, ann := c.signUp("ann")
		c.viewer = ann
		huge := strings.Repeat("x", 1<<20)
		for _, id := range []string{
			"", "1", "x", huge, globalID("Session:1"), globalID("Post:0"), globalID("Post:-1"), globalID("Post:01"), globalID("Post:+1"),
			globalID("Post:9223372036854775808"), globalID("Post:1\x00"), globalID("Post:1"), annID + "=",
		} {
			v := map[string]any{"v": id, "w": []any{id, annID}}
			require.Nil(c.t, c.get("post", `query($v: ID!) { post(id: $v) { id } }`, v), "%.40q", id)
			require.Nil(c.t, c.get("node", `query($v: ID!) { node(id: $v) { id } }`, v), "%.40q", id)
			nodes := c.get("nodes", `query($w: [ID!]!) { nodes(ids: $w) { id } }`, v)
			require.Equal(c.t, []any{nil, map[string]any{"id": annID}}, nodes, "%.40q", id)
		}
		require.Nil(c.t, c.get("post", `query($v: ID!) { post(id: $v) { id } }`, map[string]any{"v": annID}), "a user is no post")
		for _, handle := range []string{"", "a b", "a\x00b", "a\xffb", huge} {
			require.Nil(c.t, c.get("user", `query($v: String!) { user(handle: $v) { id } }`, map[string]any{"v": handle}), "%.40q", handle)
		}
	})
}

// A form can read from an error which of its fields is wrong, why, and by how much, without parsing the
// message. It can also read the limits in advance.
func TestErrorsForForms(t *testing.T) {
	each(t, func(c *client) {
		_, ann := c.signUp("ann")
		c.viewer = ann
		limits := c.get("limits", `{ limits { postLength handleLength nameLength bioLength passwordMinLength passwordLength pageSize
			mutedWordLength mutedWords mutedConversations idempotencyKeyLength avatarUrlLength links linkLength dataLength dataDepth } }`, nil).(map[string]any)
		number := func(name string) int { return int(limits[name].(float64)) }
		const (
			signUp  = `mutation($v: SignUpInput!) { signUp(input: $v) { token } }`
			post    = `mutation($v: CreatePostInput!) { createPost(input: $v) { post { id } } }`
			profile = `mutation($v: UpdateProfileInput!) { updateProfile(input: $v) { user { id } } }`
			change  = `mutation($v: ChangePasswordInput!) { changePassword(input: $v) { endedSessions } }`
			mute    = `mutation($v: MuteWordInput!) { muteWord(input: $v) { word } }`
			page    = `query($v: Int) { timeline(first: $v) { nodes { id } } }`
		)
		text := func(n int) string { return strings.Repeat("é", n) }
		account := func(handle, password string) map[string]any {
			return map[string]any{"handle": handle, "password": password}
		}
		long := func(field, limit string) map[string]any {
			return map[string]any{"code": "BAD_USER_INPUT", "reason": "TOO_LONG", "field": field,
				"limit": limit, "allowed": limits[limit], "given": limits[limit].(float64) + 1}
		}
		bad := func(reason, field string) map[string]any {
			return map[string]any{"code": "BAD_USER_INPUT", "reason": reason, "field": field}
		}
		for name, tc := range map[string]struct {
			query string
			input any
			want  map[string]any
		}{
			"post":             {post, map[string]any{"text": text(number("postLength") + 1)}, long("text", "postLength")},
			"empty post":       {post, map[string]any{"text": " "}, bad("EMPTY", "text")},
			"name":             {profile, map[string]any{"name": text(number("nameLength") + 1)}, long("name", "nameLength")},
			"name of lines":    {profile, map[string]any{"name": "a\nb"}, bad("NOT_ONE_LINE", "name")},
			"bio":              {profile, map[string]any{"bio": text(number("bioLength") + 1)}, long("bio", "bioLength")},
			"bio with control": {profile, map[string]any{"bio": "\x00"}, bad("NOT_TEXT", "bio")},
			"picture":          {profile, map[string]any{"avatarUrl": "https://" + text(number("avatarUrlLength")-7)}, long("avatarUrl", "avatarUrlLength")},
			"link":             {profile, map[string]any{"links": []any{"https://" + text(number("linkLength")-7)}}, long("links", "linkLength")},
			"links":            {profile, map[string]any{"links": repeat("https://a.example", number("links")+1)}, map[string]any{"code": "BAD_USER_INPUT", "reason": "TOO_MANY", "field": "links", "limit": "links", "allowed": limits["links"], "given": limits["links"].(float64) + 1}},
			"no link":          {profile, map[string]any{"links": []any{"mailto:a@a.example"}}, bad("NOT_A_URL", "links")},
			"data":             {profile, map[string]any{"data": map[string]any{"a": strings.Repeat("a", number("dataLength")-7)}}, long("data", "dataLength")},
			"muted word":       {mute, map[string]any{"word": text(number("mutedWordLength") + 1)}, long("word", "mutedWordLength")},
			"handle":           {signUp, account(strings.Repeat("a", number("handleLength")+1), "correct horse"), long("handle", "handleLength")},
			"handle's letters": {signUp, account("a b", "correct horse"), bad("HANDLE_CHARACTER", "handle")},
			"password":         {signUp, account("eve", text(number("passwordLength")+1)), long("password", "passwordLength")},
			"short password": {signUp, account("eve", text(number("passwordMinLength")-1)), map[string]any{"code": "BAD_USER_INPUT",
				"reason": "TOO_SHORT", "field": "password", "limit": "passwordMinLength", "allowed": limits["passwordMinLength"],
				"given": limits["passwordMinLength"].(float64) - 1}},
			"short new password": {change, map[string]any{"currentPassword": "correct horse", "newPassword": ""}, map[string]any{"code": "BAD_USER_INPUT",
				"reason": "TOO_SHORT", "field": "newPassword", "limit": "passwordMinLength", "allowed": limits["passwordMinLength"], "given": 0.0}},
			"present password": {change, map[string]any{"currentPassword": "wrong horse", "newPassword": "another horse"},
				map[string]any{"code": "FORBIDDEN", "reason": "WRONG_PASSWORD", "field": "currentPassword"}},
			"taken handle": {signUp, account("ann", "correct horse"),
				map[string]any{"code": "CONFLICT", "reason": "HANDLE_TAKEN", "field": "handle"}},
			"page": {page, number("pageSize") + 1, map[string]any{"code": "BAD_USER_INPUT", "reason": "OUT_OF_RANGE", "field": "first",
				"limit": "pageSize", "allowed": limits["pageSize"], "given": limits["pageSize"].(float64) + 1}},
		} {
			a := c.do(tc.query, map[string]any{"v": tc.input})
			require.Len(c.t, a.Errors, 1, name)
			require.Equal(c.t, tc.want, a.Errors[0].Extensions, "%s: %s", name, a.Errors[0].Message)
		}
	})
}

func repeat(s string, n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// Log-in gives the same answer for every handle and password that do not match.
func TestLogInTellsNothing(t *testing.T) {
	each(t, func(c *client) {
		c.signUp("ann")
		said := map[string]bool{}
		for _, tc := range [][2]string{
			{"ann", "wrong horse"}, {"nobody", "correct horse"}, {"no body", "correct horse"}, {"a\x00", "x"},
			{"", ""}, {"ann", ""}, {strings.Repeat("a", 10_000), "x"}, {"ann", strings.Repeat("x", 10_000)},
		} {
			a := c.do(`mutation($h: String!, $p: String!) { logIn(input: {handle: $h, password: $p}) { token } }`,
				map[string]any{"h": tc[0], "p": tc[1]})
			require.Len(c.t, a.Errors, 1)
			said[fmt.Sprint(a.Errors[0].Message, a.Errors[0].Extensions)] = true
		}
		require.Len(c.t, said, 1)
	})
}

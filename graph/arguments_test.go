package graph_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A client that sends a wrong argument gets a message that says so, and nothing
// about how the server found out.
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
			"first zero":              {timeline, one(0)},
			"first negative":          {timeline, one(-1)},
			"first the least":         {timeline, one(-1 << 31)},
			"first above the most":    {timeline, one(101)},
			"first too large an Int":  {timeline, one(1 << 31)},
			"first enormous":          {timeline, one(1e300)},
			"first a fraction":        {timeline, one(1.5)},
			"first a text":            {timeline, one("10")},
			"first a list":            {timeline, one([]any{1, 2})},
			"last zero":               {timeline, map[string]any{"w": 0}},
			"last negative":           {timeline, map[string]any{"w": -5}},
			"last above the most":     {timeline, map[string]any{"w": 101}},
			"both":                    {timeline, map[string]any{"v": 1, "w": 1}},
			"first of posts":          {`{ user(handle: "ann") { posts(first: 0) { nodes { id } } } }`, nil},
			"first of followers":      {`{ user(handle: "ann") { followers(first: -1) { nodes { id } } } }`, nil},
			"first of following":      {`{ user(handle: "ann") { following(first: 101) { nodes { id } } } }`, nil},
			"first of requests":       {`{ viewer { followRequests(first: 0) { nodes { id } } } }`, nil},
			"first of users":          {`{ users(first: 0) { nodes { id } } }`, nil},
			"first ranked":            {`{ timeline(order: RANKED, first: 0) { nodes { id } } }`, nil},
			"cursor empty":            {after, one("")},
			"cursor of nothing":       {after, one("x")},
			"cursor forged":           {after, one(forged)},
			"cursor cut":              {after, one(mine[:len(mine)-1])},
			"cursor padded":           {after, one(mine + "=")},
			"cursor of another":       {after, one(bobs)},
			"cursor of another order": {after, one(ranked)},
			"cursor of another list":  {before, one(ofUsers)},
			"cursor with a NUL":       {after, one("\x00")},
			"cursor enormous":         {after, one(huge)},
			"cursor a number":         {after, one(5)},
			"mark of another":         {mark, one(bobs)},
			"mark forged":             {mark, one(forged)},
			"mark enormous":           {mark, one(huge)},
			"id empty":                {post, one("")},
			"id of a user":            {post, one(annID)},
			"id plain":                {post, one("1")},
			"id a number":             {post, one(1)},
			"id of no type":           {node, one(globalID("Session:1"))},
			"id zero":                 {node, one(globalID("Post:0"))},
			"id negative":             {node, one(globalID("Post:-1"))},
			"id too large":            {node, one(globalID("Post:9223372036854775808"))},
			"id spelt otherwise":      {node, one(globalID("Post:01"))},
			"id with a plus":          {node, one(globalID("Post:+1"))},
			"id with a NUL":           {node, one(globalID("Post:1\x00"))},
			"id enormous":             {node, one(huge)},
			"id an object":            {node, one(map[string]any{"a": 1})},
			"one of the ids":          {nodes, one([]any{annID, "x"})},
			"a null among the ids":    {nodes, one([]any{annID, nil})},
			"too many ids":            {nodes, one(append(make([]any, 0), repeat(annID, 101)...))},
			"follow a post":           {follow, one(postID)},
			"follow oneself":          {follow, one(annID)},
			"like a user":             {like, one(annID)},
			"text empty":              {create, one("")},
			"text blank":              {create, one(" \n\t ")},
			"text with a NUL":         {create, one("a\x00b")},
			"text with an escape":     {create, one("a\x1bb")},
			"text too long":           {create, one(strings.Repeat("x", 5001))},
			"text enormous":           {create, one(huge)},
			"text not Unicode":        {create, one("a\xffb")},
			"text a number":           {create, one(1)},
			"text missing":            {create, nil},
			"text null":               {create, one(nil)},
			"name with a NUL":         {profile, one(map[string]any{"name": "a\x00"})},
			"name of two lines":       {profile, one(map[string]any{"name": "a\nb"})},
			"name empty":              {profile, one(map[string]any{"name": ""})},
			"name enormous":           {profile, one(map[string]any{"name": huge})},
			"bio with a NUL":          {profile, one(map[string]any{"bio": "\x00"})},
			"bio enormous":            {profile, one(map[string]any{"bio": huge})},
			"visibility unknown":      {profile, one(map[string]any{"defaultVisibility": "ALL"})},
			"field unknown":           {profile, one(map[string]any{"admin": true})},
			"key enormous":            {`mutation($v: String) { createPost(input: {text: "x", idempotencyKey: $v}) { post { id } } }`, one(huge)},
			"key with a NUL":          {`mutation($v: String) { createPost(input: {text: "x", idempotencyKey: $v}) { post { id } } }`, one("a\x00")},
			"handle enormous":         {signUp, one(map[string]any{"handle": huge, "password": "correct horse"})},
			"handle with a NUL":       {signUp, one(map[string]any{"handle": "a\x00", "password": "correct horse"})},
			"password enormous":       {signUp, one(map[string]any{"handle": "eve", "password": huge})},
			"password short":          {signUp, one(map[string]any{"handle": "eve", "password": "short"})},
			"password missing":        {signUp, one(map[string]any{"handle": "eve"})},
			"search enormous":         {users, one(huge)},
			"search with a NUL":       {users, one("a\x00")},
			"look-up with a NUL":      {user, one("a\x00b")},
			"look-up not Unicode":     {user, one("a\xffb")},
			"look-up enormous":        {user, one(huge)},
			"order unknown":           {`query($v: TimelineOrder) { timeline(order: $v) { nodes { id } } }`, one("BEST")},
		} {
			a := c.do(tc.query, tc.variables)
			require.Len(c.t, a.Errors, 1, name)
			require.Equal(c.t, "BAD_USER_INPUT", a.Errors[0].Extensions["code"], "%s: %s", name, a.Errors[0].Message)
			require.NotEmpty(c.t, a.Errors[0].Message, name)
			require.Less(c.t, len(a.Errors[0].Message), 200, name)
		}
		// An argument that is left out has its default.
		require.Len(c.t, c.get("timeline.nodes", timeline, nil), 1)
		require.Len(c.t, c.get("timeline.nodes", timeline, map[string]any{"v": nil, "w": nil}), 1)
	})
}

func repeat(s string, n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// Log-in answers the same for every handle and password that do not match.
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

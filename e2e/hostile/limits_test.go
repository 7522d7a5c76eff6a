package hostile

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fieldsOfUser returns n fields of a user. It uses all fields in turn, so that none exceeds
// the limit of repeats.
func fieldsOfUser(n int) string {
	names := strings.Fields("id handle name bio createdAt approvesFollowers followerCount followingCount postCount defaultVisibility __typename")
	var out strings.Builder
	for i := range n {
		out.WriteString(names[i%len(names)] + " ")
	}
	return out.String()
}

func times(n int, format string) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func chain(n int, leaf string) string {
	return `{ user(handle: "x") ` + strings.Repeat("{ followers(first: 1) { nodes ", n) + "{ " + leaf + " }" + strings.Repeat(" } }", n) + " }"
}

// nested returns n levels of braces.
func nested(n int) string {
	return strings.Repeat("{... on Query", n-1) + "{__typename}" + strings.Repeat("}", n-1)
}

func padded(n int) string {
	const query = "{__typename}"
	return query + strings.Repeat(" ", n-len(query))
}

// bomb returns a document with n fragments, each of which spreads the next one twice.
func bomb(n int) string {
	out := "{ ...f0 }"
	for i := range n {
		out += fmt.Sprintf(" fragment f%d on Query { ...f%d ...f%d }", i, i+1, i+1)
	}
	return out + fmt.Sprintf(" fragment f%d on Query { __typename }", n)
}

// documents contains, for each limit, a document within the limit and a document above it.
var documents = []struct{ limit, under, over string }{
	{"bytes", padded(32 << 10), padded(32<<10 + 1)},
	{"tokens", `{user(handle:"x"){` + fieldsOfUser(1990) + `}}`, `{user(handle:"x"){` + fieldsOfUser(1991) + `}}`},
	{"depth", chain(5, "followers(first: 1) { edges { node { id } } }"), chain(7, "id")},
	{"aliases", "{" + times(30, " a%d: __typename") + "}", "{" + times(31, " a%d: __typename") + "}"},
	{"directives", "{" + strings.Repeat(" __typename @include(if: true)", 50) + "}", "{" + strings.Repeat(" __typename @include(if: true)", 51) + "}"},
	{"cost", "{users(first:100){nodes{" + fieldsOfUser(98) + "}}}", "{users(first:100){nodes{" + fieldsOfUser(99) + "}}}"},
	{"cost", bomb(3), bomb(25)},
	{"nesting", nested(100), nested(101)},
	{"nesting", "{__typename}", strings.Repeat("{a", 900)},
	{"nesting", "{__typename}", "{a(b:" + strings.Repeat("[", 1900)},
	{"repeats", "{" + strings.Repeat("__typename ", 200) + "}", "{" + strings.Repeat("__typename ", 201) + "}"},
	{"cost", "{__schema{types{name}}}", "{" + times(25, " a%d: __schema{types{fields{type{name}}}}") + "}"},
}

func TestDocuments(t *testing.T) {
	p := start(t, "--rate-limit=off")
	p.signUp("x")
	conn, response, err := (&websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}).Dial("ws"+strings.TrimPrefix(p.url, "http")+"/graphql", nil)
	require.NoError(t, err)
	response.Body.Close()
	defer conn.Close()
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"type":"connection_init"}`)))
	_, _, err = conn.ReadMessage()
	require.NoError(t, err)
	for i, d := range documents {
		t.Run(fmt.Sprint(d.limit, i), func(t *testing.T) {
			under := p.ask(d.under, nil)
			require.NotContains(t, under.body, "errors")
			over := p.ask(d.over, nil)
			require.Contains(t, over.body, `"QUERY_TOO_COMPLEX"`)
			require.Contains(t, over.body, `"limit":"`+d.limit+`"`)
			require.Contains(t, over.body, `"allowed":`)
			require.NotContains(t, over.body, `"data"`)
			require.Less(t, over.took, refusal)

			require.NoError(t, conn.WriteJSON(map[string]any{"id": fmt.Sprint(i), "type": "subscribe", "payload": map[string]any{"query": d.over}}))
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(refusal)))
			for {
				_, message, err := conn.ReadMessage()
				require.NoError(t, err)
				if text := string(message); !strings.Contains(text, `"ping"`) {
					require.Contains(t, text, `"limit":"`+d.limit+`"`)
					require.Contains(t, text, `"type":"error"`)
					break
				}
			}
			p.healthy()
		})
	}
	many := p.ask("{"+times(25, " no%d")+"}", nil)
	require.Equal(t, 10, strings.Count(many.body, `"message"`), "errors in an answer")
}

func TestBodiesAndHeaders(t *testing.T) {
	p := start(t)
	whole := func(n int) string {
		return `{"query":"{__typename}"` + strings.Repeat(" ", n-len(`{"query":"{__typename}"}`)) + `}`
	}
	for _, tc := range []struct {
		name   string
		body   string
		change func(*http.Request)
		status int
	}{
		{"body", whole(1 << 20), nil, 200},
		{"body", whole(1<<20 + 1), nil, 413},
		{"body of braces", `{"query":"` + strings.Repeat("{", 1<<20-20) + `"}`, nil, 200},
		{"JSON of braces", strings.Repeat(`{"a":`, 200_000), nil, 400},
		{"JSON of brackets", `{"variables":` + strings.Repeat(`[`, 1_000_000), nil, 400},
		{"header", "", func(r *http.Request) { r.Header.Set("X-Large", strings.Repeat("x", 30<<10)) }, 200},
		{"header", "", func(r *http.Request) { r.Header.Set("X-Large", strings.Repeat("x", 64<<10)) }, 431},
		{"form", "query={__typename}", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 415},
		{"batch", `[{"query":"{__typename}"}]`, nil, 400},
		{"not UTF-8", "{\"query\":\"{__typename}#\xff\"}", nil, 400},
	} {
		got := p.send(tc.body, func(r *http.Request) {
			if tc.change != nil {
				tc.change(r)
			}
		})
		assert.Equal(t, tc.status, got.status, tc.name)
		assert.Less(t, got.took, refusal, tc.name)
		assert.Less(t, len(got.body), 1000, "%s is not echoed", tc.name)
		p.healthy()
	}
}

func TestRates(t *testing.T) {
	p := start(t, "--rate-accounts=3", "--rate-mutations=50", "--rate-cost=1000", "--max-cost=5000")
	logIn := func() answer {
		return p.ask(`mutation { logIn(input: {handle: "nobody", password: "wrong horse"}) { token } }`, nil)
	}
	token := p.signUp("x")
	for range 5 {
		require.Contains(t, logIn().body, "UNAUTHENTICATED")
	}
	refused := logIn()
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Contains(t, refused.body, `"retryAfter"`)
	require.Less(t, refused.took, refusal)

	like := `mutation { unlikePost(input: {postId: "x"}) { post { id } } }`
	for range 10 {
		require.Contains(t, p.ask(like, nil, as(token)).body, "BAD_USER_INPUT")
	}
	require.Equal(t, http.StatusTooManyRequests, p.ask(like, nil, as(token)).status)

	for i := range 60 {
		if got := p.ask("{__typename}", nil); got.status != http.StatusOK {
			require.Equal(t, http.StatusTooManyRequests, got.status)
			require.NotEmpty(t, got.header.Get("Retry-After"))
			break
		}
		require.Less(t, i, 55, "operations by their cost")
	}
}

// A body of the default size has room for the largest text even if every character is
// escaped. A page of the maximum size is allowed unless its fields cost too much.
func TestSizesAreSettings(t *testing.T) {
	p := start(t, "--max-text=50000", "--max-page=1000")
	token := p.signUp("x")
	write := func(characters int) answer {
		query := `mutation($t: String!) { createPost(input: {text: $t}) { post { id } } }`
		return p.send(`{"query":"`+query+`","variables":{"t":"`+strings.Repeat(`\ud83d\udc19`, characters)+`"}}`, as(token))
	}
	posted := write(50_000)
	require.Contains(t, posted.body, `"post":{"id"`)
	refused := write(50_001)
	require.Contains(t, refused.body, `"BAD_USER_INPUT"`)
	require.Contains(t, refused.body, "has 50001 characters; at most 50000 are allowed")
	require.Less(t, refused.took, refusal)

	page := func(query string, n int) string { return p.ask(query, map[string]any{"n": n}, as(token)).body }
	timeline := `query($n: Int) { timeline(first: $n) { nodes { text } } }`
	require.Contains(t, page(timeline, 1000), strings.Repeat("🐙", 50_000))
	require.Contains(t, page(timeline, 1001), "must be 1 to 1000, not 1001")
	require.Contains(t, page(`query($n: Int) { timeline(first: $n) { nodes { author { `+fieldsOfUser(8)+` } } } }`, 1000), `"QUERY_TOO_COMPLEX"`)
	_, rest, _ := strings.Cut(posted.body, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	ids := func(n int) string {
		return p.ask(`query($v: [ID!]!) { nodes(ids: $v) { id } }`, map[string]any{"v": slices.Repeat([]string{id}, n)}, as(token)).body
	}
	require.NotContains(t, ids(1000), `"errors"`)
	require.Contains(t, ids(1001), "At most 1000 ids at a time.")
}

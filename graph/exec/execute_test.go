package exec

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

func TestExecute(t *testing.T) {
	for _, tc := range []struct {
		name, query string
		variables   string
		want        string
	}{
		{
			name:  "order, aliases and __typename",
			query: `{ b: posts { z: text __typename a: id } }`,
			want: `{"data":{"b":[{"z":"first","__typename":"Post","a":"10"},{"z":"second","__typename":"Post","a":"11"},` +
				`{"z":"third","__typename":"Post","a":"12"}]}}`,
		},
		{
			name:  "all leaves",
			query: `{ node(id: 10) { ... on Post { visibility createdAt likes liked score tags replies { id } friend { id } } } }`,
			want: `{"data":{"node":{"visibility":"PUBLIC","createdAt":"1970-01-01T00:00:00.000Z","likes":3,"liked":true,` +
				`"score":1.5,"tags":["a","b"],"replies":[],"friend":null}}}`,
		},
		{
			name:  "merging of fields and fragments",
			query: `{ node(id: "10") { ...A ...B ... on Post { author { age } } } } fragment A on Post { author { id } } fragment B on Node { id ...A ... on Post { author { handle id } } }`,
			want:  `{"data":{"node":{"author":{"id":"1","handle":"ann","age":null},"id":"10"}}}`,
		},
		{
			name:      "skip and include",
			query:     `query($y: Boolean!, $n: Boolean = false) { a: old @skip(if: $y) b: old @include(if: $y) ... @include(if: $n) { c: old } ...F @skip(if: $n) d: old @skip(if: false) @include(if: false) } fragment F on Query { e: old }`,
			variables: `{"y": true}`,
			want:      `{"data":{"b":"old","e":"old"}}`,
		},
		{
			name:  "unions by type",
			query: `{ found { __typename ... on User { handle } ... on Post { text author { handle } } ... on Node { id } } }`,
			want: `{"data":{"found":[{"__typename":"User","handle":"ann","id":"1"},` +
				`{"__typename":"Post","text":"first","author":{"handle":"ann"},"id":"10"},null,` +
				`{"__typename":"User","handle":"bob","id":"2"},` +
				`{"__typename":"Post","text":"second","author":{"handle":"bob"},"id":"11"}]}}`,
		},
		{
			name:  "typed nil is null",
			query: `{ node(id: "none") { id } }`,
			want:  `{"data":{"node":null}}`,
		},
		{
			name:  "unknown concrete type",
			query: `{ node(id: "odd") { id } }`,
			want: `{"errors":[{"message":"Query.node: exec.edge is of type \"Mystery\", which is no Node","path":["node"],` +
				`"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],"data":{"node":null}}`,
		},
		{
			name:  "errors of items",
			query: `{ nodes(ids: ["1", "err", "x"]) { id ... on User { secret } } }`,
			want: `{"errors":[{"message":"not yours","path":["nodes",1],"locations":[{"line":1,"column":3}],` +
				`"extensions":{"code":"FORBIDDEN"}}],"data":{"nodes":[{"id":"1","secret":"of ann"},null,null]}}`,
		},
		{
			name:  "an item that fails in a batch",
			query: "{ posts {\n author { secret } } }",
			want: `{"errors":[{"message":"not yours","path":["posts",1,"author","secret"],"locations":[{"line":2,"column":11}],` +
				`"extensions":{"code":"FORBIDDEN"}}],"data":{"posts":[{"author":{"secret":"of ann"}},{"author":{"secret":null}},{"author":{"secret":"of ann"}}]}}`,
		},
		{
			name:  "null for non-null bubbles through the list to the root",
			query: `{ posts { text strict { id } } }`,
			want: `{"errors":[{"message":"Post.strict: null for a value that must not be","path":["posts",1,"strict"],` +
				`"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],"data":null}`,
		},
		{
			name:  "and stops at a nullable item",
			query: `{ nodes(ids: ["10", "11"]) { id ... on Post { tags strict { id } } } }`,
			want: `{"errors":[{"message":"Post.strict: null for a value that must not be","path":["nodes",1,"strict"],` +
				`"locations":[{"line":1,"column":52}],"extensions":{"code":"INTERNAL"}}],` +
				`"data":{"nodes":[{"id":"10","tags":["a","b"],"strict":{"id":"1"}},null]}}`,
		},
		{
			name:  "a failed batch fails every parent once",
			query: `{ found { ... on User { handle mustFail } } }`,
			want: `{"errors":[{"message":"not yours","path":["found",0,"mustFail"],"locations":[{"line":1,"column":32}],"extensions":{"code":"FORBIDDEN"}},` +
				`{"message":"not yours","path":["found",3,"mustFail"],"locations":[{"line":1,"column":32}],"extensions":{"code":"FORBIDDEN"}}],` +
				`"data":{"found":[null,{},null,null,{}]}}`,
		},
		{
			name:  "lists of lists",
			query: `{ grid }`,
			want: `{"errors":[{"message":"bad cell","path":["grid",2,2],"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],` +
				`"data":{"grid":[[1,2],null,[3,null,null]]}}`,
		},
		{
			name:  "null in a strict list of lists",
			query: `{ strictGrid }`,
			want: `{"errors":[{"message":"Query.strictGrid: null for a value that must not be","path":["strictGrid",1,1],` +
				`"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL"}}],"data":{"strictGrid":null}}`,
		},
		{
			name:  "holes",
			query: `{ holes { id } nonNullHoles { id } }`,
			want: `{"errors":[{"message":"Query.nonNullHoles: null for a value that must not be","path":["nonNullHoles",1],` +
				`"locations":[{"line":1,"column":16}],"extensions":{"code":"INTERNAL"}}],` +
				`"data":{"holes":[{"id":"10"},null,{"id":"11"}],"nonNullHoles":null}}`,
		},
		{
			name:  "a panic fails its field alone",
			query: `{ a: old panics b: old }`,
			want: `{"errors":[{"message":"panic: at the disco","path":["panics"],"locations":[{"line":1,"column":10}],` +
				`"extensions":{"code":"INTERNAL"}}],"data":{"a":"old","panics":null,"b":"old"}}`,
		},
		{
			name:  "mutations are one after another, finished with all below",
			query: `mutation { a: step(n: 1) { n later } b: step(n: 2) { later n } }`,
			want:  `{"data":{"a":{"n":1,"later":1},"b":{"later":2,"n":2}}}`,
		},
		{
			name:  "connections",
			query: `{ feed(first: 3) { total edges { cursor node { text } } nodes { id } } }`,
			want: `{"data":{"feed":{"total":3,"edges":[{"cursor":"10","node":{"text":"first"}},{"cursor":"11","node":{"text":"second"}},` +
				`{"cursor":"12","node":{"text":"third"}}],"nodes":[{"id":"10"},{"id":"11"},{"id":"12"}]}}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &fixture{}
			r := Request{Query: tc.query}
			if tc.variables != "" {
				require.NoError(t, json.Unmarshal([]byte(tc.variables), &r.Variables))
			}
			got := run(t, f.engine(t), r)
			require.Equal(t, tc.want, got)
			require.True(t, json.Valid([]byte(got)))
		})
	}
}

func TestABatchResolverIsCalledOncePerSelection(t *testing.T) {
	f := &fixture{}
	run(t, f.engine(t), Request{Query: `{ posts { author { id posts { nodes { author { handle } } } } } found { ... on Post { author { id } } } }`})
	require.Equal(t, map[string][]int{"Query.posts": {1}, "Post.author": {3, 5, 2}, "User.posts": {3}}, f.calls)
}

func TestMutationsRunInOrder(t *testing.T) {
	f := &fixture{}
	run(t, f.engine(t), Request{Query: `mutation { step(n: 1) { later } fail b: step(n: 2) { later } }`})
	require.Equal(t, []string{"step 1", "later 1", "step 2", "later 2"}, f.log)
}

func TestErrorsAreBounded(t *testing.T) {
	f := &fixture{}
	shown := 0
	e := f.engine(t, func(c *Config) {
		c.Limits.Errors = 2
		c.ErrorPresenter = func(ctx context.Context, err error) *gqlerror.Error { shown++; return present(ctx, err) }
	})
	op, errs := e.Prepare(t.Context(), Request{Query: `{ nodes(ids: ["err", "err", "err"]) { id } }`})
	require.Nil(t, errs)
	require.Len(t, e.Execute(t.Context(), op).Errors, 2)
	require.Equal(t, 2, shown)

	shown = 0
	op, errs = e.Prepare(t.Context(), Request{Query: `{ found { ... on User { mustFail } } }`})
	require.Nil(t, errs)
	require.Len(t, e.Execute(t.Context(), op).Errors, 2)
	require.Equal(t, 1, shown, "one failure of a batch is presented once")
}

func TestErrorsWithoutPresenterTellNothing(t *testing.T) {
	f := &fixture{}
	e := f.engine(t, func(c *Config) { c.ErrorPresenter = nil })
	require.Equal(t, `{"errors":[{"message":"internal server error","path":["fail"],"locations":[{"line":1,"column":12}],`+
		`"extensions":{"code":"INTERNAL"}}],"data":{"fail":null}}`, run(t, e, Request{Query: `mutation { fail }`}))
}

func TestPanicsAreReported(t *testing.T) {
	f := &fixture{}
	var recovered []any
	fields := f.fields()
	fields["Post"]["text"] = Value(func(p *post) string {
		if p.id == 11 {
			panic("property")
		}
		return p.text
	})
	fields["User"]["name"] = Value(func(*user) any { return &badStringer{} })
	e := f.engine(t, func(c *Config) {
		c.Fields = fields
		c.TypeOf = func(any) string { panic("type") }
		c.Recover = func(_ context.Context, p any) error {
			recovered = append(recovered, p)
			return errors.New("boom")
		}
	})
	require.Contains(t, run(t, e, Request{Query: `{ holes { id text } }`}), `"data":{"holes":[{"id":"10","text":"first"},null,null]}`)
	require.Contains(t, run(t, e, Request{Query: `{ posts { author { name } } }`}), `{"author":{"name":null}}`)
	require.Contains(t, run(t, e, Request{Query: `{ node(id: "1") { id } }`}), `"data":{"node":null}`)
	require.Equal(t, []any{"property", "stringer", "stringer", "stringer", "type"}, recovered)
}

type badStringer struct{}

func (*badStringer) String() string { panic("stringer") }

func TestWrongValuesAreErrors(t *testing.T) {
	f := &fixture{}
	fields := f.fields()
	fields["Post"]["text"] = Value(func(*post) bool { return true })
	fields["Post"]["tags"] = Value(func(*post) string { return "a" })
	fields["Post"]["replies"] = Value(func(p *post) *post { return p })
	fields["Post"]["score"] = Value(func(*post) time.Time { return time.Time{} })
	e := f.engine(t, func(c *Config) { c.Fields = fields })
	for field, want := range map[string]string{
		"text": "Post.text: bool is no String", "tags": "Post.tags: string is no list",
		"replies { id }": "Post.replies: *exec.post is no list", "score": "Post.score: time.Time is no Float",
	} {
		require.Contains(t, run(t, e, Request{Query: `{ nodes(ids: ["10"]) { ... on Post { ` + field + ` } } }`}), want)
	}
}

func TestResponse(t *testing.T) {
	for _, tc := range []struct {
		response Response
		want     string
	}{
		{Response{}, `{}`},
		{Response{Data: json.RawMessage(`{"a":"<"}`)}, `{"data":{"a":"<"}}`},
		{Response{Extensions: map[string]any{"x": "<"}}, `{"extensions":{"x":"<"}}`},
		{
			Response{Data: json.RawMessage(`null`), Errors: gqlerror.List{{Message: "a < b"}}, Extensions: map[string]any{"x": 1}},
			`{"errors":[{"message":"a < b"}],"data":null,"extensions":{"x":1}}`,
		},
	} {
		b, err := tc.response.AppendJSON([]byte("before"))
		require.NoError(t, err)
		require.Equal(t, "before"+tc.want, string(b))
	}
	_, err := json.Marshal(Response{Extensions: map[string]any{"x": func() {}}})
	require.ErrorContains(t, err, "encode the extensions of a response")
	_, err = json.Marshal(Response{Errors: gqlerror.List{{Extensions: map[string]any{"x": func() {}}}}})
	require.ErrorContains(t, err, "encode the errors of a response")
}

func TestPresentedErrorsAlwaysHaveACode(t *testing.T) {
	f := &fixture{}
	e := f.engine(t, func(c *Config) {
		c.ErrorPresenter = func(context.Context, error) *gqlerror.Error {
			return &gqlerror.Error{Extensions: map[string]any{"retry": 1}}
		}
	})
	require.Contains(t, run(t, e, Request{Query: `{ panics }`}),
		`"message":"internal server error","path":["panics"],"locations":[{"line":1,"column":3}],"extensions":{"code":"INTERNAL","retry":1}`)
}

func TestAWrongParentIsAnError(t *testing.T) {
	f := &fixture{}
	fields := f.fields()
	fields["Post"]["likes"] = Value(func(*user) int { return 1 })
	fields["Post"]["author"] = Many(func(context.Context, []*user, Args) ([]*user, error) { return nil, nil })
	fields["Post"]["friend"] = Many(func(context.Context, []*post, Args) ([]*user, error) { return nil, nil })
	e := f.engine(t, func(c *Config) { c.Fields = fields })
	for _, field := range []string{"likes", "author { id }", "friend { id }"} {
		require.Contains(t, run(t, e, Request{Query: `{ nodes(ids: ["10"]) { ... on Post { ` + field + ` } } }`}), `"code":"INTERNAL"`)
	}
}

func TestNothingIsResolvedWhenTheContextIsDone(t *testing.T) {
	f := &fixture{}
	e := f.engine(t)
	op, errs := e.Prepare(t.Context(), Request{Query: `{ posts { id } }`})
	require.Nil(t, errs)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	response := e.Execute(ctx, op)
	require.Equal(t, "null", string(response.Data))
	require.Equal(t, "context canceled", response.Errors[0].Message)
	require.Empty(t, f.calls)
}

func TestAnOperationCanBeExecutedAgain(t *testing.T) {
	f := &fixture{}
	e := f.engine(t)
	op, errs := e.Prepare(t.Context(), Request{Query: `query Again { found { __typename } }`})
	require.Nil(t, errs)
	require.Equal(t, "Again", op.Name())
	require.Equal(t, e.Execute(t.Context(), op), e.Execute(t.Context(), op))
	_, errs = e.Subscribe(t.Context(), op)
	require.Len(t, errs, 1)
}

func TestRootFields(t *testing.T) {
	e := (&fixture{}).engine(t)
	op, errs := e.Prepare(t.Context(), Request{
		Query: `query($no: Boolean = false) { old b: old __typename ...F panics @include(if: $no) old } fragment F on Query { old found { __typename } }`,
	})
	require.Nil(t, errs)
	require.Equal(t, []string{"old", "old", "__typename", "found"}, op.RootFields())
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	f := &fixture{}
	cfg := Config{Schema: loadFixture(t), Fields: f.fields()}
	delete(cfg.Fields["Post"], "text")
	cfg.Fields["Post"]["txt"] = Value(func(*post) string { return "" })
	cfg.Fields["Pots"] = nil
	cfg.Fields["Subscription"]["numbers"] = Value(func(Root) int { return 1 })
	cfg.Fields["Query"]["old"] = Stream(func(context.Context, Args) (<-chan any, error) { return nil, nil })
	_, err := New(cfg)
	require.EqualError(t, err, `exec: field Post.text has no resolver
field Query.old is no subscription: its resolver must not be a Stream
field Subscription.numbers is a subscription: its resolver must be a Stream
resolver for Post.txt: the schema has no such field
resolvers for Pots: the schema has no such object type
the schema has interfaces or unions: TypeOf is required`)

	_, err = New(Config{})
	require.Error(t, err)
	_, err = New(Config{Schema: loadFixture(t), Limits: Limits{Depth: -1}})
	require.ErrorContains(t, err, "limit Depth must not be negative")
}

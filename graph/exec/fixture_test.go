package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

const fixtureSchema = `
"An instant."
scalar Time @specifiedBy(url: "https://example.com/time")
interface Node { id: ID! }
enum Visibility { PUBLIC PRIVATE OLD @deprecated(reason: "gone") }
type User implements Node {
  id: ID!
  handle: String!
  name: String
  createdAt: Time!
  age: Int
  posts(first: Int, after: String): PostConnection!
  "Fails."
  secret: String
  mustFail: String!
}
type Post implements Node {
  id: ID!
  text: String!
  author: User!
  visibility: Visibility!
  createdAt: Time!
  likes: Int!
  liked: Boolean!
  score: Float!
  tags: [String!]!
  friend: User
  strict: User!
  replies(first: Int): [Post!]
}
type PostEdge { cursor: String! node: Post! }
type PostConnection { edges: [PostEdge!]! nodes: [Post!]! total: Int! }
union Found = User | Post
input Range @oneOf { day: Int week: Int }
input Filter { text: String = "any" tags: [String!] nested: Filter visibility: Visibility = PUBLIC must: Int! range: Range }
type Query {
  posts(first: Int): [Post!]!
  feed(first: Int, last: Int): PostConnection!
  node(id: ID!): Node
  nodes(ids: [ID!]!): [Node]!
  found: [Found]!
  echo(int: Int, float: Float, string: String = "dflt", bool: Boolean, id: ID, ids: [ID!], visibility: Visibility, time: Time, filter: Filter, matrix: [[Int]]): String
  must(n: Int!): Int!
  grid: [[Int]]
  strictGrid: [[Int!]!]
  holes: [Post]
  nonNullHoles: [Post!]
  leaf(kind: String!): Leaf
  panics: String
  old: String @deprecated
}
type Leaf { int: Int float: Float string: String bool: Boolean id: ID enum: Visibility time: Time }
type Mutation { step(n: Int!): Step! fail: String }
type Step { n: Int! later: Int! }
union Event = User | Post
type Subscription { events(n: Int): Event! numbers: Int broken: Int }
`

type user struct {
	id        int64
	handle    string
	name      *string
	createdAt time.Time
}

type visibility string

type post struct {
	id     int64
	text   string
	author *user
}

type edge struct{ node *post }

type posts []*post

// fixture counts the calls of batch resolvers and logs their order.
type fixture struct {
	mu    sync.Mutex
	calls map[string][]int // field: parents of each call
	log   []string
	step  int
	leaf  any
	kinds map[string]any
}

var (
	ann   = &user{id: 1, handle: "ann", createdAt: time.Date(2024, 1, 2, 3, 4, 5, 6_789_000, time.FixedZone("", 3600))}
	bob   = &user{id: 2, handle: "bob"}
	thing = []*post{{10, "first", ann}, {11, "second", bob}, {12, "third", ann}}
)

func (f *fixture) called(field string, parents int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string][]int{}
	}
	f.calls[field] = append(f.calls[field], parents)
	f.log = append(f.log, field)
}

var errSecret = &gqlerror.Error{Message: "not yours", Extensions: map[string]any{"code": "FORBIDDEN"}}

func (f *fixture) fields() map[string]map[string]Field {
	leaf := func(kind string) Field { return Value(func(*Leaf) any { return f.leaf }) }
	return map[string]map[string]Field{
		"User": {
			"id":        Value(func(u *user) int64 { return u.id }),
			"handle":    Value(func(u *user) string { return u.handle }),
			"name":      Value(func(u *user) *string { return u.name }),
			"createdAt": Value(func(u *user) time.Time { return u.createdAt }),
			"age":       Value(func(u *user) *int { return nil }),
			"posts": Many(func(_ context.Context, us []*user, _ Args) ([]posts, error) {
				f.called("User.posts", len(us))
				out := make([]posts, len(us))
				for i, u := range us {
					for _, p := range thing {
						if p.author == u {
							out[i] = append(out[i], p)
						}
					}
				}
				return out, nil
			}),
			"secret": Many(func(_ context.Context, us []*user, _ Args) ([]any, error) {
				out := make([]any, len(us))
				for i, u := range us {
					out[i] = "of " + u.handle
					if u == bob {
						out[i] = errSecret
					}
				}
				return out, nil
			}),
			"mustFail": Many(func(context.Context, []*user, Args) ([]string, error) { return nil, errSecret }),
		},
		"Post": {
			"id":         Value(func(p *post) int64 { return p.id }),
			"text":       Value(func(p *post) string { return p.text }),
			"visibility": Value(func(p *post) visibility { return "PUBLIC" }),
			"createdAt":  Value(func(p *post) time.Time { return time.UnixMilli(0) }),
			"likes":      Value(func(p *post) int { return 3 }),
			"liked":      Value(func(p *post) bool { return true }),
			"score":      Value(func(p *post) float64 { return 1.5 }),
			"tags":       Value(func(p *post) []string { return []string{"a", "b"} }),
			"author": Many(func(_ context.Context, ps []*post, _ Args) ([]*user, error) {
				f.called("Post.author", len(ps))
				out := make([]*user, len(ps))
				for i, p := range ps {
					out[i] = p.author
				}
				return out, nil
			}),
			"friend": Many(func(_ context.Context, ps []*post, _ Args) ([]*user, error) {
				return make([]*user, len(ps)), nil
			}),
			"strict": Many(func(_ context.Context, ps []*post, _ Args) ([]any, error) {
				out := make([]any, len(ps))
				for i, p := range ps {
					out[i] = p.author
					if p.id == 11 {
						out[i] = nil
					}
				}
				return out, nil
			}),
			"replies": Value(func(p *post) []*post { return nil }),
		},
		"PostEdge": {
			"cursor": Value(func(e edge) string { return fmt.Sprint(e.node.id) }),
			"node":   Value(func(e edge) *post { return e.node }),
		},
		"PostConnection": {
			"nodes": Value(func(ps posts) []*post { return ps }),
			"edges": Value(func(ps posts) []any {
				out := []any{}
				for _, p := range ps {
					out = append(out, edge{p})
				}
				return out
			}),
			"total": Value(func(ps posts) int { return len(ps) }),
		},
		"Query": {
			"posts": One(func(context.Context, Root, Args) ([]*post, error) {
				f.called("Query.posts", 1)
				return thing, nil
			}),
			"feed": One(func(context.Context, Root, Args) (posts, error) { return thing, nil }),
			"node": One(func(_ context.Context, _ Root, a Args) (any, error) {
				switch *a.String("id") {
				case "1":
					return ann, nil
				case "10":
					return thing[0], nil
				case "odd":
					return edge{}, nil
				}
				return (*user)(nil), nil
			}),
			"nodes": One(func(_ context.Context, _ Root, a Args) ([]any, error) {
				out := []any{}
				for _, id := range a.Strings("ids") {
					switch id {
					case "1":
						out = append(out, ann)
					case "10":
						out = append(out, thing[0])
					case "11":
						out = append(out, thing[1])
					case "err":
						out = append(out, errSecret)
					default:
						out = append(out, (*post)(nil))
					}
				}
				return out, nil
			}),
			"found": One(func(context.Context, Root, Args) ([]any, error) {
				return []any{ann, thing[0], nil, bob, thing[1]}, nil
			}),
			"echo": One(func(_ context.Context, _ Root, a Args) (string, error) { return fmt.Sprint(a.values), nil }),
			"must": One(func(_ context.Context, _ Root, a Args) (int, error) { return *a.Int("n"), nil }),
			"grid": One(func(context.Context, Root, Args) (any, error) {
				return []any{[]int{1, 2}, nil, []any{3, nil, errors.New("bad cell")}}, nil
			}),
			"strictGrid": One(func(context.Context, Root, Args) (any, error) {
				return [][]any{{1}, {2, nil}}, nil
			}),
			"holes":        One(func(context.Context, Root, Args) ([]*post, error) { return []*post{thing[0], nil, thing[1]}, nil }),
			"nonNullHoles": One(func(context.Context, Root, Args) ([]*post, error) { return []*post{thing[0], nil}, nil }),
			"leaf": One(func(_ context.Context, _ Root, a Args) (any, error) {
				f.leaf = f.kinds[*a.String("kind")]
				return &Leaf{}, nil
			}),
			"panics": One(func(context.Context, Root, Args) (string, error) { panic("at the disco") }),
			"old":    Value(func(Root) string { return "old" }),
		},
		"Leaf": {
			"int": leaf("int"), "float": leaf("float"), "string": leaf("string"), "bool": leaf("bool"),
			"id": leaf("id"), "enum": leaf("enum"), "time": leaf("time"),
		},
		"Mutation": {
			"step": One(func(_ context.Context, _ Root, a Args) (int, error) {
				f.called(fmt.Sprintf("step %d", *a.Int("n")), 1)
				f.step = *a.Int("n")
				return *a.Int("n"), nil
			}),
			"fail": One(func(context.Context, Root, Args) (string, error) { return "", errors.New("sql: secret") }),
		},
		"Step": {
			"n": Value(func(n int) int { return n }),
			"later": Many(func(_ context.Context, ns []int, _ Args) ([]int, error) {
				f.called(fmt.Sprintf("later %d", ns[0]), len(ns))
				return []int{f.step}, nil
			}),
		},
		"Subscription": {
			"events": Stream(func(ctx context.Context, a Args) (<-chan any, error) {
				if n := a.Int("n"); n != nil && *n < 0 {
					return nil, errSecret
				}
				ch := make(chan any)
				go func() {
					defer close(ch)
					for _, v := range []any{ann, thing[0], errors.New("lost"), edge{}, bob} {
						select {
						case ch <- v:
						case <-ctx.Done():
							return
						}
					}
					if n := a.Int("n"); n != nil {
						<-ctx.Done()
					}
				}()
				return ch, nil
			}),
			"broken": Stream(func(context.Context, Args) (<-chan any, error) {
				ch := make(chan any, 3)
				ch <- 1
				ch <- brokenOff{}
				ch <- 2
				return ch, nil
			}),
			"numbers": Stream(func(context.Context, Args) (<-chan any, error) { panic("no numbers") }),
		},
	}
}

type Leaf struct{}

func typeOf(v any) string {
	switch v.(type) {
	case *user:
		return "User"
	case *post:
		return "Post"
	}
	return "Mystery"
}

func present(_ context.Context, err error) *gqlerror.Error {
	var shown *gqlerror.Error
	if errors.As(err, &shown) {
		return shown
	}
	return &gqlerror.Error{Message: err.Error()}
}

func loadFixture(t testing.TB) *ast.Schema {
	t.Helper()
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "fixture", Input: fixtureSchema})
	require.NoError(t, err)
	return schema
}

func (f *fixture) engine(t testing.TB, change ...func(*Config)) *Engine {
	t.Helper()
	cfg := Config{Schema: loadFixture(t), Fields: f.fields(), TypeOf: typeOf, ErrorPresenter: present, Introspection: true}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(cfg)
	require.NoError(t, err)
	return e
}

// run answers the whole response as JSON.
func run(t testing.TB, e *Engine, r Request) string {
	t.Helper()
	op, errs := e.Prepare(t.Context(), r)
	response := Response{Errors: errs}
	if errs == nil {
		response = e.Execute(t.Context(), op)
	}
	b, err := response.AppendJSON(nil)
	require.NoError(t, err)
	return string(b)
}

package exec

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"go.uber.org/goleak"

	"tideline/graph/exec/exectest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func present(_ context.Context, err error) *gqlerror.Error {
	var shown *gqlerror.Error
	if errors.As(err, &shown) {
		return shown
	}
	return &gqlerror.Error{Message: err.Error()}
}

// newEngine returns an engine that executes the given root fields.
func newEngine(t testing.TB, fields map[string]exectest.Resolver, change ...func(*Config)) *Engine {
	t.Helper()
	cfg := Config{Schema: exectest.New(t, fixtureSchema, fields), ErrorPresenter: present, Introspection: true}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(cfg)
	require.NoError(t, err)
	return e
}

// text returns a response as JSON.
func text(t testing.TB, r Response) string {
	t.Helper()
	b, err := r.AppendJSON(nil)
	require.NoError(t, err)
	return string(b)
}

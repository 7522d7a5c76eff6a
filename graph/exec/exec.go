// Package exec executes GraphQL operations on a gqlparser schema with batch resolvers.
//
// It hides how a document becomes JSON: limits, validation, the coercion of variables and arguments, the
// plan of a selection set, the order in which resolvers are called, and the writing of the response.
//
// Invariants:
//   - A batch resolver ([Many]) is called once for all objects of one selection: 20 posts in a list cost one
//     call for their authors, whatever the number of authors, and the authors' own fields again one call each.
//     No goroutines and no timers are involved: the calls of one operation are made one after another.
//   - Root fields run one at a time, each finished with everything below it before the next one starts.
//   - The work a document can cause is bounded before any of it is done: its bytes, tokens, nesting, depth,
//     aliases, directives and cost.
//   - A panic in a resolver fails the fields it was to resolve, nothing else.
//   - A response names at most [Limits].Errors errors, and every error carries extensions.code.
//
// It knows no transport and no product; it does not merge equal objects (a batch resolver sees every parent,
// duplicates included), cache results, support @defer, or persist queries.
package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// Config is what [New] builds an engine from. Schema and Fields are required.
type Config struct {
	// Schema is a validated schema that includes gqlparser's prelude (as gqlparser.LoadSchema makes it).
	// It is not changed. Custom scalars take strings as input.
	Schema *ast.Schema

	// Fields holds the resolver of every field of every object type: type name, then field name. The fields of
	// Query and Mutation take [Root] as their parent, those of Subscription are a [Stream].
	Fields map[string]map[string]Field

	// TypeOf names the object type of a value found where the schema has an interface or a union.
	// Required when the schema has one.
	TypeOf func(value any) string

	// Limits bound what one request may ask for.
	Limits Limits

	// Introspection allows __schema and __type. Off, they are validation errors.
	Introspection bool

	// Suggestions adds "Did you mean" with names of the schema to validation errors.
	Suggestions bool

	// ErrorPresenter turns the error of a resolver, or of the engine itself while it executes, into what the
	// client sees; the engine adds path and locations, and the code INTERNAL when it names none. Without it,
	// and when it answers nil, every error is "internal server error". An error that fails a whole batch is
	// presented once; errors beyond [Limits].Errors are not presented.
	ErrorPresenter func(ctx context.Context, err error) *gqlerror.Error

	// Recover turns a recovered panic into the error that is presented. It is called on the panicking stack.
	// Defaults to an error that holds the panic's value.
	Recover func(ctx context.Context, panicked any) error
}

// Limits bound one request. Zero means the default; a negative limit is refused by [New].
type Limits struct {
	DocumentBytes int // length of the query text; defaults to 32768
	Tokens        int // lexical tokens of the document; defaults to 2000
	Depth         int // nested fields, introspection not counted; defaults to 15
	Aliases       int // aliased fields in the document; defaults to 30
	Directives    int // directives in the document; defaults to 50
	Errors        int // errors in one response; defaults to 10

	// Cost is the number of fields an operation may produce, estimated before it runs; defaults to 10000.
	// A field counts one, and what is below a field with the argument first or last counts that many times
	// (PageSize without it). A list counts PageSize times, or as often as its list argument has items; a list
	// directly below a field with first or last is its page and does not count again. __schema and __type
	// count 500 each, their lists do not multiply.
	Cost     int
	PageSize int // the page size assumed where none is asked for; defaults to 20

	// CacheBytes bounds the memory of parsed documents kept for later requests, as an estimate from their
	// texts; defaults to 16 MiB.
	CacheBytes int
}

// maxNesting bounds braces, brackets and parentheses before anything recursive sees the document.
const maxNesting = 100

// maxRepeats bounds how often a document may write the same response key: validation compares each pair.
const maxRepeats = 200

// introspectionCost stands for what is below __schema or __type: the schema bounds it, not page sizes.
const introspectionCost = 500

func (l *Limits) setDefaults() error {
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{
		{"DocumentBytes", &l.DocumentBytes, 32 << 10},
		{"Tokens", &l.Tokens, 2000},
		{"Depth", &l.Depth, 15},
		{"Aliases", &l.Aliases, 30},
		{"Directives", &l.Directives, 50},
		{"Errors", &l.Errors, 10},
		{"Cost", &l.Cost, 10_000},
		{"PageSize", &l.PageSize, 20},
		{"CacheBytes", &l.CacheBytes, 16 << 20},
	} {
		if *f.value < 0 {
			return fmt.Errorf("limit %s must not be negative, is %d", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	return nil
}

// Engine executes operations. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	schema  *ast.Schema
	rules   *rules.Rules
	objects map[string]*object
	cache   *documentCache
}

// New checks the configuration and compiles it. It fails when a field of the schema has no resolver, when a
// resolver names a type or field the schema does not have, or is of the wrong kind for its field; the error
// names them all.
func New(cfg Config) (*Engine, error) {
	if cfg.Schema == nil || cfg.Schema.Query == nil {
		return nil, errors.New("exec: a schema with a query type is required")
	}
	if err := cfg.Limits.setDefaults(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if cfg.Recover == nil {
		cfg.Recover = func(_ context.Context, panicked any) error { return fmt.Errorf("panic: %v", panicked) }
	}
	e := &Engine{cfg: cfg, schema: withoutDefer(cfg.Schema), cache: newDocumentCache(cfg.Limits.CacheBytes)}
	e.rules = validationRules(cfg)
	var err error
	if e.objects, err = compile(e.schema, cfg); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	return e, nil
}

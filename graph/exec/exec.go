// Package exec admits GraphQL operations and has gqlgen execute them.
//
// It hides what makes that safe for documents by anyone: the limits, the validation, the strict coercion of
// variables and arguments before anything runs, and how often a text is parsed.
//
// Invariants:
//   - The work a document can cause is bounded before any of it is done: its bytes, tokens, nesting, depth,
//     aliases, directives and cost.
//   - What is executed has arguments of the right types: errors of resolvers are the product's.
//   - A response names at most [Limits].Errors errors, and every error carries extensions.code.
//
// It knows no transport and no product, and does not persist queries.
package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// Config is what [New] builds an engine from. Schema is required.
type Config struct {
	// Schema is what gqlgen generated, on a schema without @defer ([WithoutDefer]).
	Schema graphql.ExecutableSchema

	// Begin, if not nil, gives the context of one execution: of a query or mutation, or of one event of a
	// subscription.
	Begin func(ctx context.Context) context.Context

	// Compile, if not nil, is asked for each query with a single field at its root and no directives, once a
	// document, whether it can be answered without gqlgen: nil if not.
	Compile func(op *graphql.OperationContext, root graphql.CollectedField) Compiled

	// Limits bound what one request may ask for.
	Limits Limits

	// Introspection allows __schema and __type. Off, they are validation errors.
	Introspection bool

	// Suggestions adds "Did you mean" with names of the schema to validation errors.
	Suggestions bool

	// ErrorPresenter turns the error of a resolver into what the client sees; the engine adds path and
	// location, and the code INTERNAL when it names none. Without it, and when it answers nil, every error is
	// "internal server error".
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
	cfg    Config
	schema *ast.Schema
	rules  *rules.Rules
	cache  *documentCache
}

// New checks the configuration.
func New(cfg Config) (*Engine, error) {
	if cfg.Schema == nil {
		return nil, errors.New("exec: a schema is required")
	}
	if err := cfg.Limits.setDefaults(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if cfg.Begin == nil {
		cfg.Begin = func(ctx context.Context) context.Context { return ctx }
	}
	if cfg.Recover == nil {
		cfg.Recover = func(_ context.Context, panicked any) error { return fmt.Errorf("panic: %v", panicked) }
	}
	return &Engine{
		cfg: cfg, schema: cfg.Schema.Schema(), rules: validationRules(cfg), cache: newDocumentCache(cfg.Limits.CacheBytes),
	}, nil
}

// WithoutDefer is the schema without the @defer of gqlparser's prelude: no transport here answers in parts, so
// neither introspection nor validation should offer it.
func WithoutDefer(schema *ast.Schema) *ast.Schema {
	s := *schema
	s.Directives = maps.Clone(schema.Directives)
	delete(s.Directives, "defer")
	return &s
}

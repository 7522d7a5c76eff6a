package exec

import (
	"context"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Request is a GraphQL request of a client.
type Request struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName"`
	Variables     map[string]any `json:"variables"`
	Extensions    map[string]any `json:"extensions"`
}

// Operation is a request that has passed every check. It can be executed any number of times.
type Operation struct {
	def      *ast.OperationDefinition
	context  *graphql.OperationContext // gqlgen stores data of the operation there between executions
	cost     int
	compiled compiled

	prices map[*ast.Field]int // of the selected fields that wait for their turn
	turn   Turn               // set by TakeTurns; nil: no field waits
}

// Kind says whether the operation is a query, a mutation or a subscription.
func (o *Operation) Kind() ast.Operation { return o.def.Operation }

// Name returns the operation's name, empty for an anonymous one.
func (o *Operation) Name() string { return o.def.Name }

// Cost returns the estimated number of fields that the operation may produce plus the prices of
// its reads; see [Limits].Cost.
func (o *Operation) Cost() int { return o.cost }

// Compiled reports whether the operation is answered without gqlgen.
func (o *Operation) Compiled() bool { return o.compiled.write != nil }

// Turn calls read when a field with the price may be read, and returns after read. If ctx ends first, it returns
// false without calling read, and the field is an error. It is called concurrently.
type Turn func(ctx context.Context, price int, read func()) (ok bool)

// TakeTurns makes each field with a price in [Config].Prices or of PagePrice wait for its turn, except the root
// field of a subscription. A field never waits while it holds a turn: the fields below it are read after its
// turn. TakeTurns must be called before the operation is executed.
func (o *Operation) TakeTurns(turn Turn) {
	if o.turn = turn; turn != nil && len(o.prices) > 0 {
		o.context.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (value any, err error) {
			err = o.inTurn(ctx, graphql.GetFieldContext(ctx).Field.Field, func() error {
				value, err = next(ctx)
				return err
			})
			return value, err
		}
	}
}

// inTurn calls read, in a turn if the field has a price.
func (o *Operation) inTurn(ctx context.Context, f *ast.Field, read func() error) (err error) {
	price := o.prices[f]
	if o.turn == nil || price == 0 {
		return read()
	}
	if !o.turn(ctx, price, func() { err = read() }) {
		return context.Cause(ctx)
	}
	return err
}

// RootFields returns the names of the root fields that the operation executes, in order. A
// field selected twice occurs once if both selections have the same response key, since it is
// executed once, and otherwise twice.
func (o *Operation) RootFields() []string {
	collected := graphql.CollectFields(o.context, o.def.SelectionSet, []string{o.root()})
	names := make([]string, len(collected))
	for i, f := range collected {
		names[i] = f.Name
	}
	return names
}

// root returns the name of the operation's root type.
func (o *Operation) root() string {
	switch o.def.Operation {
	case ast.Mutation:
		return "Mutation"
	case ast.Subscription:
		return "Subscription"
	}
	return "Query"
}

// Prepare parses, bounds and validates a request, and coerces its variables and arguments. Its errors are
// request errors: nothing was executed, and the response has no data. It caches parsed documents.
func (e *Engine) Prepare(ctx context.Context, r Request) (*Operation, gqlerror.List) {
	if r.Query == "" {
		if r.Extensions["persistedQuery"] != nil {
			return nil, gqlerror.List{requestError(CodePersistedNotSupported, "PersistedQueryNotSupported")}
		}
		return nil, gqlerror.List{requestError(CodeBadUserInput, "the request has no query")}
	}
	doc, errs := e.load(ctx, r.Query)
	if errs != nil {
		return nil, errs
	}
	def := doc.ast.Operations.ForName(r.OperationName)
	if def == nil {
		if r.OperationName == "" {
			return nil, gqlerror.List{requestError(CodeBadUserInput,
				"the document has several operations: operationName must name one")}
		}
		return nil, gqlerror.List{requestError(CodeBadUserInput, "the document has no operation %q", r.OperationName)}
	}
	variables, err := e.coerceVariables(def, r.Variables)
	if err != nil {
		return nil, gqlerror.List{err}
	}
	op := &Operation{def: def, context: e.operation(r.Query, doc.ast, def, variables), compiled: doc.compiled[def]}
	p := preparation{engine: e, variables: variables, mutation: def.Operation == ast.Mutation}
	op.cost = p.cost(def.SelectionSet, false)
	op.prices = p.prices
	for _, price := range p.shared {
		op.cost += price
	}
	if p.err != nil {
		return nil, gqlerror.List{p.err}
	}
	if limit := e.cfg.Limits.Cost; op.cost > limit {
		return nil, gqlerror.List{limitError("cost", limit,
			"the operation may cost %d, %d is allowed: ask for fewer or smaller pages", op.cost, limit)}
	}
	if def.Operation == ast.Subscription {
		// Validation counts fields by name; two aliases of one field are still two root fields.
		if n := len(op.RootFields()); n != 1 {
			return nil, gqlerror.List{at(requestError(CodeValidationFailed,
				"a subscription must select exactly one top level field, this selects %d", n), def.Position)}
		}
	}
	return op, nil
}

// Check parses, bounds and validates a document without preparing one of its operations.
func (e *Engine) Check(ctx context.Context, query string) gqlerror.List {
	_, errs := e.load(ctx, query)
	return errs
}

// preparation checks the arguments of one operation and computes its cost, in time linear in the document.
type preparation struct {
	engine    *Engine
	variables map[string]any
	mutation  bool
	prices    map[*ast.Field]int // of the selected fields that wait for their turn
	fragments map[fragmentCost]int
	shared    map[*ast.FieldDefinition]int // selected fields with a shared price
	err       *gqlerror.Error
}

type fragmentCost struct {
	name   string
	inPage bool
}

// cost estimates how many fields a selection set produces and what they read. inPage says that the parent
// field has a page size, so that a list directly in the set is its page.
func (p *preparation) cost(set ast.SelectionSet, inPage bool) int {
	total := 0
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			if !p.included(s.Directives) {
				continue
			}
			if isIntrospection(s.Name) {
				total += introspectionCost
			}
			arguments := p.arguments(s)
			times, paged := p.times(s, arguments, inPage)
			total += 1 + p.price(s, arguments, paged)
			total += times * p.cost(s.SelectionSet, paged && s.Definition.Type.Elem == nil)
		case *ast.InlineFragment:
			if p.included(s.Directives) {
				total += p.cost(s.SelectionSet, inPage)
			}
		case *ast.FragmentSpread:
			if !p.included(s.Directives) {
				continue
			}
			key := fragmentCost{s.Name, inPage}
			cost, ok := p.fragments[key]
			if !ok {
				cost = p.cost(s.Definition.SelectionSet, inPage)
				if p.fragments == nil {
					p.fragments = map[fragmentCost]int{}
				}
				p.fragments[key] = cost
			}
			total += cost
		}
		total = min(total, enough)
	}
	return total
}

// price returns the price of a field, and records it in p.prices. It records a shared price, which a query
// pays once, in p.shared and returns 0; a mutation pays it for each field.
func (p *preparation) price(f *ast.Field, arguments map[string]any, paged bool) (price int) {
	of := f.Definition
	if shared, ok := p.engine.shared[of]; ok {
		if p.mutation {
			return shared
		}
		if p.shared == nil {
			p.shared = map[*ast.FieldDefinition]int{}
		}
		p.shared[of] = shared
		return 0
	}
	if priceOf, ok := p.engine.prices[of]; ok {
		price = priceOf(arguments)
	} else if paged {
		price = p.engine.cfg.PagePrice
	}
	if price > 0 && f.ObjectDefinition.Name != "Subscription" {
		if p.prices == nil {
			p.prices = map[*ast.Field]int{}
		}
		p.prices[f] = price
	}
	return price
}

// times returns how many objects a field may produce. paged says that the field has a page size.
func (p *preparation) times(f *ast.Field, args map[string]any, inPage bool) (times int, paged bool) {
	if len(f.SelectionSet) == 0 || isIntrospection(f.Name) || strings.HasPrefix(f.ObjectDefinition.Name, "__") {
		return 1, false
	}
	for _, def := range f.Definition.Arguments {
		switch n := args[def.Name].(type) {
		case []any:
			times = max(times, len(n))
		case int:
			if def.Name == "first" || def.Name == "last" {
				times = max(times, n)
			}
		}
		paged = paged || def.Name == "first" || def.Name == "last"
	}
	switch {
	case times > 0 && (paged || f.Definition.Type.Elem != nil):
		return times, paged
	case paged, f.Definition.Type.Elem != nil && !inPage:
		return p.engine.cfg.Limits.PageSize, paged
	}
	return 1, false
}

func (p *preparation) arguments(f *ast.Field) map[string]any {
	if len(f.Definition.Arguments) == 0 {
		return nil
	}
	values, err := p.engine.coerceArguments(f.Definition.Arguments, f.Arguments, p.variables)
	if err != nil && p.err == nil {
		p.err = at(err, f.Position)
	}
	return values
}

// included evaluates @skip and @include.
func (p *preparation) included(directives ast.DirectiveList) bool {
	for _, d := range directives {
		args, err := p.engine.coerceArguments(d.Definition.Arguments, d.Arguments, p.variables)
		if err != nil {
			if p.err == nil {
				p.err = at(err, d.Position)
			}
			return false
		}
		if d.Name != "skip" && d.Name != "include" {
			continue
		}
		if met, _ := args["if"].(bool); met == (d.Name == "skip") {
			return false
		}
	}
	return true
}

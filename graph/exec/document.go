package exec

import (
	"context"
	"errors"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// document is a parsed, bounded and validated query text, shared by all requests with that text.
type document struct {
	text     string
	ast      *ast.QueryDocument
	compiled map[*ast.OperationDefinition]compiled
}

// bytesPerQueryByte is an estimate of the memory, in bytes, that a parsed
// document takes per byte of its text.
const bytesPerQueryByte = 40

// load returns the document of a query text. Each step that is recursive or worse than linear runs only after
// the limits that keep it cheap were checked.
func (e *Engine) load(ctx context.Context, text string) (doc *document, errs gqlerror.List) {
	if doc, ok := e.cache.Get(text); ok {
		return doc, nil
	}
	if limit := e.cfg.Limits.DocumentBytes; len(text) > limit {
		return nil, gqlerror.List{limitError("bytes", limit,
			"the document has %d bytes, %d are allowed", len(text), limit)}
	}
	defer func() {
		if p := recover(); p != nil {
			doc, errs = nil, gqlerror.List{e.present(ctx, e.recovered(ctx, p))}
		}
	}()
	source := &ast.Source{Input: text}
	if err := e.scan(source); err != nil {
		return nil, gqlerror.List{err}
	}
	query, err := parser.ParseQuery(source)
	if err != nil {
		return nil, gqlerror.List{parseError(err)}
	}
	if len(query.Operations) == 0 {
		return nil, gqlerror.List{requestError(CodeParseFailed, "the document has no operation")}
	}
	directives, tooMuch := e.measure(query)
	if tooMuch != nil {
		return nil, gqlerror.List{tooMuch}
	}
	if errs := validator.ValidateWithRules(e.schema, query, e.rules); len(errs) > 0 {
		errs = errs[:min(len(errs), e.cfg.Limits.Errors)]
		for _, err := range errs {
			err.Extensions = map[string]any{"code": validationCode(err)}
		}
		return nil, errs
	}
	doc = &document{text: text, ast: query}
	if directives == 0 {
		doc.compiled = e.compile(doc)
	}
	e.cache.Put(text, doc, len(text)*bytesPerQueryByte)
	return doc, nil
}

func parseError(err error) *gqlerror.Error {
	parsed := requestError(CodeParseFailed, "%s", err.Error())
	var positioned *gqlerror.Error
	if errors.As(err, &positioned) {
		parsed.Message, parsed.Locations = positioned.Message, positioned.Locations
	}
	return parsed
}

// scan limits the number of tokens and their nesting, since the parser recurses with the nesting.
func (e *Engine) scan(source *ast.Source) *gqlerror.Error {
	lex := lexer.New(source)
	tokens, nesting := 0, 0
	for {
		token, err := lex.ReadToken()
		if err != nil {
			return parseError(err)
		}
		switch token.Kind {
		case lexer.EOF:
			return nil
		case lexer.BraceL, lexer.BracketL, lexer.ParenL:
			nesting++
		case lexer.BraceR, lexer.BracketR, lexer.ParenR:
			nesting--
		}
		if tokens++; tokens > e.cfg.Limits.Tokens {
			return limitError("tokens", e.cfg.Limits.Tokens,
				"the document has more than %d tokens", e.cfg.Limits.Tokens)
		}
		if nesting > maxNesting {
			return at(limitError("nesting", maxNesting,
				"the document nests deeper than %d braces, brackets and parentheses", maxNesting), &token.Pos)
		}
	}
}

// measures are the measures of a document. They are taken before validation, since the time of
// validation depends on them: a few hundred bytes of fragments that spread each other twice
// expand to billions of fields.
type measures struct {
	fragments map[string]*ast.FragmentDefinition
	known     map[string]extent // of the fragments measured so far: each is measured once
	visiting  map[string]bool

	aliases    int // in the text
	directives int
	times      map[string]int // how often each response key is selected
	repeated   *ast.Field     // a field that is selected too often; may be nil
}

// extent is the size of a selection set with its fragments expanded.
type extent struct {
	fields int
	depth  int
}

// enough is larger than any limit, and small enough that its square fits into an int.
const enough = 1 << 31

func (e *Engine) measure(query *ast.QueryDocument) (directives int, err *gqlerror.Error) {
	limits := e.cfg.Limits
	m := &measures{
		fragments: make(map[string]*ast.FragmentDefinition, len(query.Fragments)),
		known:     map[string]extent{},
		visiting:  map[string]bool{},
		times:     map[string]int{},
	}
	for _, f := range query.Fragments {
		m.fragments[f.Name] = f
	}
	check := func(x extent, pos *ast.Position) *gqlerror.Error {
		if x.fields > limits.Cost {
			return at(limitError("cost", limits.Cost,
				"with its fragments expanded the document selects more than %d fields", limits.Cost), pos)
		}
		if x.depth > limits.Depth {
			return at(limitError("depth", limits.Depth,
				"the document nests fields %d deep, %d levels are allowed", x.depth, limits.Depth), pos)
		}
		return nil
	}
	for _, op := range query.Operations {
		m.directives += len(op.Directives)
		for _, v := range op.VariableDefinitions {
			m.directives += len(v.Directives)
		}
		if err := check(m.selections(op.SelectionSet), op.Position); err != nil {
			return 0, err
		}
	}
	for _, f := range query.Fragments {
		x := m.fragment(f.Name)
		x.depth = 0 // the spread counts the depth: introspection may be deeper
		if err := check(x, f.Position); err != nil {
			return 0, err
		}
	}
	if m.repeated != nil {
		return 0, at(limitError("repeats", maxRepeats,
			"the field %s is selected more than %d times in the document", m.repeated.Alias, maxRepeats), m.repeated.Position)
	}
	if m.aliases > limits.Aliases {
		return 0, limitError("aliases", limits.Aliases,
			"the document has %d aliases, %d are allowed", m.aliases, limits.Aliases)
	}
	if m.directives > limits.Directives {
		return 0, limitError("directives", limits.Directives,
			"the document has %d directives, %d are allowed", m.directives, limits.Directives)
	}
	return m.directives, nil
}

func (m *measures) selections(set ast.SelectionSet) extent {
	var total extent
	for _, selection := range set {
		var x extent
		switch s := selection.(type) {
		case *ast.Field:
			m.directives += len(s.Directives)
			if s.Alias != s.Name {
				m.aliases++
			}
			if m.times[s.Alias]++; m.times[s.Alias] > maxRepeats {
				m.repeated = s
			}
			x = m.selections(s.SelectionSet)
			x.fields++
			x.depth++
			if isIntrospection(s.Name) {
				x.depth = 1 // validation has its own bound on the depth below
			}
		case *ast.InlineFragment:
			m.directives += len(s.Directives)
			x = m.selections(s.SelectionSet)
		case *ast.FragmentSpread:
			m.directives += len(s.Directives)
			x = m.fragment(s.Name)
		}
		total.fields = min(total.fields+x.fields, enough)
		total.depth = max(total.depth, x.depth)
	}
	return total
}

func (m *measures) fragment(name string) extent {
	if x, ok := m.known[name]; ok {
		return x
	}
	def := m.fragments[name]
	if def == nil || m.visiting[name] {
		return extent{} // unknown or cyclic: validation reports it
	}
	m.visiting[name] = true
	m.directives += len(def.Directives)
	x := m.selections(def.SelectionSet)
	delete(m.visiting, name)
	m.known[name] = x
	return x
}

func isIntrospection(field string) bool { return field == "__schema" || field == "__type" }

// validationCode gives literal integers beyond 64 bits, which gqlparser reports, the same code as
// smaller ones, which coercion reports.
func validationCode(err *gqlerror.Error) string {
	if strings.HasPrefix(err.Message, "Int cannot represent non 32-bit") {
		return CodeBadUserInput
	}
	return CodeValidationFailed
}

// validationRules returns gqlparser's rules, with the suggestions and introspection
// that the configuration allows.
func validationRules(cfg Config) *rules.Rules {
	rs := rules.NewDefaultRules()
	if !cfg.Suggestions {
		for _, quiet := range []core.Rule{
			rules.FieldsOnCorrectTypeRuleWithoutSuggestions,
			rules.KnownArgumentNamesRuleWithoutSuggestions,
			rules.KnownTypeNamesRuleWithoutSuggestions,
			rules.ScalarLeafsRuleWithoutSuggestions,
			rules.ValuesOfCorrectTypeRuleWithoutSuggestions,
		} {
			rs.RemoveRule(strings.TrimSuffix(quiet.Name, "WithoutSuggestions"))
			rs.AddRule(quiet.Name, quiet.RuleFunc)
		}
	}
	if !cfg.Introspection {
		rs.AddRule("NoIntrospection", func(observers *core.Events, addError core.AddErrFunc) {
			observers.OnField(func(_ *core.Walker, f *ast.Field) {
				if isIntrospection(f.Name) {
					addError(core.Message("Introspection is disabled: %s is not available.", f.Name),
						core.At(f.Position))
				}
			})
		})
	}
	return rs
}
